#include "device/machine.h"
#include "device/cpu/cpu.h"

#include <hwloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

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
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology) != 0)
        return ech__fail(ctx, ECH_E_NOMEM, "hwloc did not start");
    if (hwloc_topology_load(topology) != 0) {
        hwloc_topology_destroy(topology);
        return ech__fail(ctx, ECH_E_INTERNAL, "hwloc did not read this machine");
    }
    read_topology(out, topology);
    out->memory_bytes = (int64_t)sysconf(_SC_PHYS_PAGES) * (int64_t)sysconf(_SC_PAGESIZE);
    hwloc_topology_destroy(topology);
    read_vectors(out);
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
