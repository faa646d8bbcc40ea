/* A study that only tests have: placeholders, a repetition, a command that prints its record, and a
 * run that is asked for when the others are known. That it is run and told is the proof that a
 * study is added by adding a file. */
#include "lab/sheet.h"

#define WORDS "train --model linear --dim %" PRId64 " --depth 2 --batch-size 8 --steps 8 --warmup 2"

static const ech__lab_param params[] = {{"dim", 32, 64, 1, 65536, "width of a layer"}, {0}};

static void runs(ech__lab_runs *lab)
{
    const int64_t dim = ech__lab_param_of(lab, "dim");
    double loss;
    ech__lab_run(lab, "first", WORDS " --save-params @out/w.safetensors", dim);
    ech__lab_run(lab, "again", WORDS " --save-params @out/w.safetensors @repeat:2", dim);
    ech__lab_run(lab, "onward", WORDS " --init @of:first/w.safetensors", dim);
    ech__lab_run(lab, "machine", "info");
    if (ech__lab_known(lab, &loss, "[first summary.final_loss]"))
        ech__lab_run(lab, "second", WORDS " --lr %g", dim, loss > 0 ? 0.5 : 0.25);
}

static void tell(ech__sheet *s)
{
    ech__tell_let(s, "loss", "fixed4", "[first summary.final_loss]");
    ech__tell_table(s, "Losses", NULL);
    ech__tell_column(s, "run", "text");
    ech__tell_column(s, "loss", "fixed4");
    for (int i = 0; i < 2; i++) {
        const char *id = i ? "second" : "first";
        ech__tell_row(s);
        ech__tell_words(s, "%s", id);
        ech__tell_cell(s, "[%s summary.final_loss]", id);
    }
    ech__tell_ask(s, "What is the loss?");
    ech__tell_say(s, "It is {loss}.");
}

const ech__study_card ech__study_probe = {
    .id = "probe",
    .group = 'B',
    .place = 900,
    .title = "A probe",
    .about = "Small trainings, one of which goes on from another.",
    .params = params,
    .quick_seconds = 2,
    .full_seconds = 4,
    .runs = runs,
    .tell = tell,
};
