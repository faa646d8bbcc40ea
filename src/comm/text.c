#include "comm/comm.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Texts between ranks. Lengths go first; a rank that has no memory for what is coming says so, so
 * that no other waits for it in vain: everybody fails together. */

/* Fails everywhere where one rank has no memory. */
static ech_status all_have(ech__comm *comm, bool mine, long long bytes)
{
    int32_t missing = !mine;
    ech__coll any = {.op = ECH__COLL_ALLREDUCE,
                     .reduction = ECH__REDUCTION_MAX,
                     .dtype = ECH_S32,
                     .count = 1,
                     .src = &missing,
                     .dst = &missing};
    ECH_TRY(ech__comm_run(comm, &any));
    return missing ? ech__no_memory(comm->ctx, "%lld bytes of text", bytes) : ECH_OK;
}

ech_status ech__comm_share_text(ech__comm *comm, const char *text, char **out)
{
    *out = NULL;
    int64_t bytes = comm->rank == 0 ? (int64_t)strlen(text) : 0;
    ECH_TRY(ech__comm_broadcast(comm, &bytes, sizeof bytes, 0));
    char *copy = malloc((size_t)bytes + 1);
    ech_status status = all_have(comm, copy != NULL, bytes);
    if (status == ECH_OK) {
        assert(copy);
        if (comm->rank == 0)
            memcpy(copy, text, (size_t)bytes);
        copy[bytes] = '\0';
        status = ech__comm_broadcast(comm, copy, bytes, 0);
    }
    if (status < 0) {
        free(copy);
        return status;
    }
    *out = copy;
    return ECH_OK;
}

/* Every rank's text at all[r * longest], on every rank. */
static ech_status gather_all(ech__comm *comm, const char *text, int64_t *longest, char **all)
{
    *all = NULL;
    int32_t most = (int32_t)strlen(text) + 1;
    ech__coll find = {.op = ECH__COLL_ALLREDUCE,
                      .reduction = ECH__REDUCTION_MAX,
                      .dtype = ECH_S32,
                      .count = 1,
                      .src = &most,
                      .dst = &most};
    ECH_TRY(ech__comm_run(comm, &find));
    const size_t total = (size_t)most * ((size_t)comm->world + 1);
    char *memory = calloc(total, 1);
    ech_status status = all_have(comm, memory != NULL, (long long)total);
    if (status == ECH_OK) {
        assert(memory);
        char *mine = memory + (size_t)most * (size_t)comm->world;
        memcpy(mine, text, strlen(text));
        status = ech__comm_allgather(comm, mine, memory, most);
    }
    if (status < 0) {
        free(memory);
        return status;
    }
    *longest = most;
    *all = memory;
    return ECH_OK;
}

ech_status ech__comm_gather_texts(ech__comm *comm, const char *text, char **texts)
{
    int64_t longest;
    char *all;
    for (int r = 0; r < comm->world; r++)
        texts[r] = NULL;
    ECH_TRY(gather_all(comm, text, &longest, &all));
    for (int r = 0; comm->rank == 0 && r < comm->world; r++) {
        texts[r] = strdup(all + r * longest);
        if (!texts[r]) {
            while (r-- > 0) {
                free(texts[r]);
                texts[r] = NULL;
            }
            free(all);
            return ech__no_memory(comm->ctx, "%lld bytes of text", (long long)longest);
        }
    }
    free(all);
    return ECH_OK;
}

/* Names the first line in which two texts differ. */
static ech_status disagree(ech__comm *comm, int rank_a, const char *a, int rank_b, const char *b)
{
    size_t start = 0, i = 0;
    for (; a[i] && a[i] == b[i]; i++)
        if (a[i] == '\n')
            start = i + 1;
    const int len_a = (int)strcspn(a + start, "\n"), len_b = (int)strcspn(b + start, "\n");
    const char *nothing = "nothing more";
    return ech__fail(comm->ctx, ECH_E_INVALID,
                     "the ranks do not agree: rank %d has \"%.*s\", rank %d has \"%.*s\"", rank_a,
                     len_a ? (len_a < 200 ? len_a : 200) : 12, len_a ? a + start : nothing, rank_b,
                     len_b ? (len_b < 200 ? len_b : 200) : 12, len_b ? b + start : nothing);
}

ech_status ech__comm_agree(ech__comm *comm, const char *text)
{
    int64_t longest;
    char *all;
    ECH_TRY(gather_all(comm, text, &longest, &all));
    ech_status status = ECH_OK;
    for (int r = 1; r < comm->world && status == ECH_OK; r++)
        if (strcmp(all, all + r * longest) != 0)
            status = disagree(comm, 0, all, r, all + r * longest);
    free(all);
    return status;
}
