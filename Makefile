# make help lists the targets. CMakeLists.txt holds the build itself.

SAN    ?=
PREFIX ?= /usr/local
JOBS   ?= $(shell nproc)
FUZZ   ?= $(if $(SAN),0,10)
# Less than everything, for a first look.
ONLY   ?=
LAB    ?= all
BENCH  ?= run comm ddp pipeline precision
BENCH_ARGS ?=
BASE   ?= HEAD~1
COMPARE ?=
# make itself has a variable of this name, so it is set here whatever it was.
LINT   :=

comma  := ,
BUILD  := $(if $(SAN),build/san-$(subst $(comma),-,$(SAN)),build)
# The variables of this make are none of the inner make's business.
CMAKE  := env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL cmake
PROGRAM := $(BUILD)/echelon

.PHONY: all help lab test test-ranks test-builds bench compare same predict simgrid parity install lint format fuzz clean configure

all: configure ## build the library and the program: build/echelon
	@$(CMAKE) --build $(BUILD) -j $(JOBS)

help: ## this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18
	@echo "  SAN=address,undefined or SAN=thread: a sanitizer build of its own, with any target"
	@echo "  FUZZ=SECONDS: time for each fuzzer in make test and make fuzz; 0 leaves them out"
	@echo "  ONLY=REGEX: make test runs the tests with such names; LAB='run dp-vs-ddp': make lab runs that study;"
	@echo "  BENCH='comm ddp': make bench runs these of $(BENCH); BENCH_ARGS=--quick; LINT=REGEX: make lint runs such checks"
	@echo "  BASE=REV: make compare and make same compare with that commit; COMPARE='--budget 2min': options of echelon compare"
	@echo "  CMAKE_ARGS='-D...': options for CMake when it configures a build"

# Again where something was not found the last time: it may have been installed since.
configure:
	@[ -f $(BUILD)/Makefile ] && [ ! -s $(BUILD)/missing.txt ] || { tools/setup --check build && \
		$(CMAKE) -S . -B $(BUILD) -DECH_SAN=$(SAN) $(CMAKE_ARGS) >/dev/null; }

lab: ## set up, build, run every study in small sizes; prints where the report is
	@tools/setup build lab
	@$(MAKE) --no-print-directory all
	$(PROGRAM) lab $(LAB) --quick --out $(BUILD)/lab

test: ## set up, build and run every test
	@tools/setup build test
	@$(MAKE) --no-print-directory all
	@$(CMAKE) --build $(BUILD) -j $(JOBS) --target tests
	@tools/run_tests $(BUILD) --fuzz $(FUZZ) $(if $(ONLY),--only '$(ONLY)')

test-ranks: ## reports of 512 ranks on two pretended nodes: at most 2 log2 N messages per rank and step
	@$(MAKE) --no-print-directory all
	@$(CMAKE) --build $(BUILD) -j $(JOBS) --target tests
	@ECH_RANKS=512 tools/run_tests $(BUILD) --fuzz 0 --only comm/many_ranks

test-builds: ## build in fresh clones: every order of the targets, libraries hidden and brought back (15 minutes)
	@tools/test_builds

bench: ## measure against PyTorch, gloo and Open MPI (installs them)
	@tools/setup build bench
	@$(MAKE) --no-print-directory all
	$(foreach part,$(BENCH),bench/$(part) $(PROGRAM) $(BENCH_ARGS) &&) true

compare: ## is this commit slower than BASE=REV? both are built and run in turns
	@tools/setup build
	@$(MAKE) --no-print-directory all
	@tools/compare_builds '$(BASE)' $(PROGRAM) $(COMPARE)

same: ## does BASE=REV compute the same? losses, parameters, kernels and memory of every model, strategy and main option
	@tools/setup build
	@$(MAKE) --no-print-directory all
	@tools/same '$(BASE)' $(PROGRAM)

predict: ## compare predicted, emulated and measured step times
	@tools/setup build
	@$(MAKE) --no-print-directory all
	bench/predict $(PROGRAM)

simgrid: ## compare prices of all-reduces with SimGrid (installs it)
	@tools/setup build test simgrid
	@$(MAKE) --no-print-directory all
	@$(CMAKE) --build $(BUILD) --target price_prog_price
	tools/simgrid/compare $(BUILD)

parity: ## compare losses and weights with PyTorch (installs it)
	@tools/setup build bench
	@$(MAKE) --no-print-directory all
	bench/parity $(PROGRAM)

install: all ## install under PREFIX (/usr/local); DESTDIR is honoured
	@DESTDIR=$(DESTDIR) $(CMAKE) --install $(BUILD) --prefix $(PREFIX)
	@[ -n "$(DESTDIR)" ] || ldconfig 2>/dev/null || true

lint: ## formatting, static analysis, include order, scripts, links
	@tools/setup build test lint
	@$(MAKE) --no-print-directory configure
	@tools/lint $(BUILD) $(if $(LINT),'$(LINT)')

format: ## rewrite the C files as .clang-format says
	@tools/setup lint
	@find include src tests fuzz bench examples -name '*.[ch]' 2>/dev/null | xargs clang-format -i

fuzz: ## run each fuzzer for FUZZ seconds
	@tools/setup build test
	@tools/fuzz $(FUZZ)

clean: ## remove everything that was built
	rm -rf build
