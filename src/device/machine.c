#include "device/machine.h"
#include "device/cpu/cpu.h"

#include <errno.h>
#include <hwloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

static ech_status load_topology(ech_ctx *ctx, hwloc_topology_t *out)
{
    if (hwloc_topology_init(out) != 0)
        return ech__fail(ctx, ECH_E_NOMEM, "hwloc did not start");
    if (hwloc_topology_load(*out) != 0) {
        hwloc_topology_destroy(*out);
        return ech__fail(ctx, ECH_E_INTERNAL, "hwloc did not read this machine");
    }
    return ECH_OK;
}

static void read_topology(ech__machine *m, hwloc_topology_t topology)
{
    static const hwloc_obj_type_t caches[] = {HWLOC_OBJ_L1CACHE, HWLOC_OBJ_L2CACHE,
                                              HWLOC_OBJ_L3CACHE};
    m->cores = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
    m->threads = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PU);
    for (int i = 0; i < 3; i++) {
        const hwloc_obj_t cache = hwloc_get_obj_by_type(topology, caches[i], 0);
        m->cache_bytes[i] = cache ? (int64_t)cache->attr->cache.size : 0;
    }
}

static void read_vectors(ech__machine *m)
{
#ifdef ECH_X86
    __builtin_cpu_init();
    size_t used = 0;
#define SEE(feature)                                                                               \
    if (__builtin_cpu_supports(feature))                                                           \
    used += (size_t)snprintf(m->vectors + used, sizeof m->vectors - used, "%s%s", used ? " " : "", \
                             feature)
    SEE("avx2");
    SEE("fma");
    SEE("avx512f");
    SEE("avx512bw");
    SEE("avx512vl");
    SEE("avx512dq");
    SEE("avx512vnni");
    SEE("avx512bf16");
#undef SEE
#else
    (void)m;
#endif
}

ech_status ech__machine_read(ech_ctx *ctx, ech__machine *out)
{
    memset(out, 0, sizeof *out);
    ECH_TRY(ech__isa_check(ctx));
    hwloc_topology_t topology;
    ECH_TRY(load_topology(ctx, &topology));
    read_topology(out, topology);
    out->memory_bytes = (int64_t)sysconf(_SC_PHYS_PAGES) * (int64_t)sysconf(_SC_PAGESIZE);
    hwloc_topology_destroy(topology);
    read_vectors(out);
    out->isa = ech__isa_level();
    out->best_isa = ech__isa_of_processor();
    struct utsname system;
    if (uname(&system) == 0)
        snprintf(out->system, sizeof out->system, "%.63s %.63s %.15s", system.sysname,
                 system.release, system.machine);
    out->usable = ech__device_cores();
    ech__cpu_processor(out->processor, sizeof out->processor);
    ech__onednn_version(out->onednn, sizeof out->onednn);
    ech__blas_version(out->openblas, sizeof out->openblas);
    return ECH_OK;
}

ech_json *ech__machine_json(const ech__machine *m)
{
    ech_json *json = ech__json_object(), *caches = ech__json_array();
    for (int i = 0; i < 3; i++)
        ech__json_append_int(&caches, m->cache_bytes[i]);
    ech__json_set_string(&json, "processor", m->processor);
    ech__json_set_string(&json, "vectors", m->vectors);
    ech__json_set_string(&json, "isa", ech__isa_name(m->isa));
    ech__json_set_string(&json, "isa_of_processor", ech__isa_name(m->best_isa));
    ech__json_set_int(&json, "cores", m->cores);
    ech__json_set_int(&json, "threads", m->threads);
    ech__json_set_int(&json, "usable", m->usable);
    ech__json_set(&json, "cache_bytes", caches);
    ech__json_set_int(&json, "memory_bytes", m->memory_bytes);
    ech__json_set_string(&json, "system", m->system);
    ech__json_set_string(&json, "onednn", m->onednn);
    ech__json_set_string(&json, "openblas", m->openblas);
    return json;
}

/* ---- cores for ranks ---- */

static void add_thread(ech__cores *out, int id, bool new_core)
{
    if (out->count == ECH__MAX_HWTHREADS)
        return;
    out->cores += new_core;
    out->thread[out->count].id = id;
    out->thread[out->count++].core = out->cores - 1;
}

ech_status ech__machine_cores(ech_ctx *ctx, ech__cores *out)
{
    *out = (ech__cores){0};
    ech__cpus usable;
    if (!ech__cpus_read(&usable))
        return ech__fail(ctx, ECH_E_UNSUPPORTED,
                         "the system does not say which cores may be used: %s", strerror(errno));
    hwloc_topology_t topology;
    ECH_TRY(load_topology(ctx, &topology));
    hwloc_obj_t last = NULL, pu = NULL;
    while ((pu = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_PU, pu))) {
        const hwloc_obj_t core = hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_CORE, pu);
        if (pu->os_index >= ECH__MAX_CPUS || !ech__cpus_has(&usable, (int)pu->os_index))
            continue;
        add_thread(out, (int)pu->os_index, !core || core != last);
        last = core;
    }
    hwloc_topology_destroy(topology);
    /* A description of the machine from elsewhere (HWLOC_XMLFILE) may know other processors. */
    for (int id = 0; !out->count && id < ECH__MAX_CPUS; id++) {
        if (ech__cpus_has(&usable, id))
            add_thread(out, id, true);
    }
    return ECH_OK;
}

/* Threads of the cores [first, last): the first of each core, then the second of each, and so
 * on. */
static int whole_cores(const ech__cores *c, int first, int last, int *ids, int max)
{
    int n = 0;
    bool more = true;
    for (int sibling = 0; more; sibling++) {
        more = false;
        for (int i = 0; i < c->count; i++) {
            const int core = c->thread[i].core;
            if (core < first || core >= last || i < sibling ||
                c->thread[i - sibling].core != core ||
                (i > sibling && c->thread[i - sibling - 1].core == core))
                continue;
            more = true;
            if (n < max)
                ids[n++] = c->thread[i].id;
        }
    }
    return n;
}

int ech__share_cores(const ech__cores *c, int rank, int ranks, int *ids, int max)
{
    if (ranks <= c->cores)
        return whole_cores(c, rank * c->cores / ranks, (rank + 1) * c->cores / ranks, ids, max);
    int all[ECH__MAX_HWTHREADS];
    const int count = whole_cores(c, 0, c->cores, all, ECH__MAX_HWTHREADS);
    if (!count || max < 1)
        return 0;
    ids[0] = all[rank % count];
    return 1;
}

ech_status ech__machine_share_cores(ech_ctx *ctx, int rank, int ranks, int *cores, int max,
                                    int *count)
{
    ech__cores all;
    ECH_TRY(ech__machine_cores(ctx, &all));
    *count = ech__share_cores(&all, rank, ranks, cores, max);
    return ECH_OK;
}
