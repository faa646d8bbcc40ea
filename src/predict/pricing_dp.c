/* The price of a DataParallel step: what device 0 does for the others, and the parts of all. */
#include "data/loader.h"
#include "predict/pricing_internal.h"

#include <math.h>

ech_status ech__prepare_dp(ech__pricing *p)
{
    const ech__graphs_options options = {.train = &p->config.train};
    ECH_TRY(ech__operators_of_split(p->model, p->loss, &options, &p->alone));
    return ech__pricing_match(p, &p->alone);
}

static double phase_seconds(const ech__cost_point *point, const void *phase)
{
    return point->alone->phase_s[*(const int *)phase];
}

static double hand_over_seconds(const ech__cost_point *point, const void *arg)
{
    (void)arg;
    return point->alone->hand_over_s;
}

static double loader_seconds(const ech__cost_point *point, const void *arg)
{
    (void)arg;
    return point->alone->loader_s;
}

/* What device 0 moves for each of the others. */
typedef struct moved {
    int64_t inputs, weights, outputs, gradients;
} moved;

static moved moved_by(const ech__pricing *p, int64_t rows)
{
    const ech_graph *body = p->alone.split.body;
    moved m = {0};
    for (size_t v = 0; v < body->nvalues; v++) {
        const ech__value *value = &body->values[v];
        if (value->kind == ECH__VALUE_INPUT && (ech_value)v != p->alone.split.grad_in)
            m.inputs += ech__value_bytes(body, (ech_value)v) * rows;
        else if (value->kind == ECH__VALUE_PARAM || value->kind == ECH__VALUE_BUFFER)
            m.weights += ech__value_bytes(body, (ech_value)v);
        else if (value->kind == ECH__VALUE_GRADIENT)
            m.gradients += ech__value_bytes(body, (ech_value)v);
    }
    m.outputs = ech__value_bytes(body, p->alone.split.prediction) * rows;
    return m;
}

/* A message from device 0 to each of the others; they leave its port one behind the other. */
static double send_all(const ech__pricing *p, int64_t devices, int64_t bytes)
{
    const int64_t each = p->cluster.devices_per_node;
    const int64_t near = each && each < devices ? each - 1 : devices - 1;
    const int64_t far = devices - 1 - near;
    return (double)near * ech__price_message(&p->cluster.inside, bytes) +
           (double)far * ech__price_message(&p->cluster.between, bytes);
}

/* A step is handed over to device 0's thread, and two parts of it to the others'. */
static double hand_over(const ech__pricing *p, const ech__price *price)
{
    const ech__machine_costs *machine = ech__pricing_machine(p);
    if (price->devices == 1)
        return ech__cost_at(&p->points, price->batch, false, hand_over_seconds, NULL);
    return machine->step_job_s + 2 * machine->part_job_s;
}

/* Where devices have all cores, the loader of the whole batch takes its time from them; it is
 * bound to none, so that each loses its share. It loads several small batches at once and then
 * none for a while: the step in the middle sees that only where at least every other one does. */
static double loading_beside(const ech__pricing *p, const ech__price *price)
{
    if (ech__pricing_crowding(p, price->devices) < 1 || ech__loader_burst(price->global) > 2)
        return 0;
    return ech__cost_at(&p->points, price->global, true, loader_seconds, NULL) /
           (double)price->devices;
}

/* The loss of the whole batch on a device that is known by description. */
static double head_seconds(const ech__pricing *p, int64_t samples)
{
    const ech_graph *head = p->alone.split.head;
    double seconds = 0;
    for (size_t n = 0; n < head->nnodes; n++) {
        const ech__work work = ech__node_work(head, &head->nodes[n], samples);
        seconds += ech__roofline_seconds(p->options.device, &work, ECH__ROOFLINE_MIDDLE);
    }
    return seconds;
}

ech_status ech__price_dp(ech__pricing *p, ech__price *price)
{
    const ech__machine_costs *machine = ech__pricing_machine(p);
    const int64_t N = price->devices;
    const moved m = moved_by(p, price->batch);
    /* The others refresh their copies of weights before they begin. */
    ech__operator_list *first = &p->alone.at[0], *slowest = &p->alone.at[N > 1];
    double phase[ECH__DP_PHASES];
    /* Device 0 does these for all samples, its own included, alone. */
    for (int i = 0; i < ECH__DP_PHASES; i++)
        phase[i] = ech__cost_at(&p->points, price->global, true, phase_seconds, &i);
    if (p->options.device)
        phase[ECH__DP_LOSS] = head_seconds(p, price->global);
    const double replicate = ech__size_seconds(&machine->copy, m.weights) * (double)(N - 1);
    const double add = ech__size_seconds(&machine->add, m.gradients) * (double)(N - 1);
    double exposed =
        phase[ECH__DP_SCATTER] + phase[ECH__DP_GATHER] + phase[ECH__DP_SCATTER_GRADIENT];
    if (N > 1 && p->options.cluster)
        exposed += send_all(p, N, m.inputs) + send_all(p, N, m.weights) +
                   2 * send_all(p, N, m.outputs) + send_all(p, N, m.gradients);
    else if (N > 1) /* and the others fetch what was copied, and write again what was read */
        exposed += replicate + ech__size_seconds(&machine->fetch, m.weights) +
                   ech__size_seconds(&machine->rewrite, m.gradients);
    ech__operator_times times = ech__pricing_times(p, N, price->batch, ech__pricing_crowding(p, N));
    ech__operators_time(slowest, &times);
    const double parts = ech__operators_sum(slowest, ECH__PRICED_FORWARD) +
                         ech__operators_sum(slowest, ECH__PRICED_BACKWARD) +
                         (N > 1 ? ech__operators_sum(slowest, ECH__PRICED_OPTIMIZER) : 0);
    times.crowding = 0; /* it updates alone, too */
    ech__operators_time(first, &times);
    price->step.compute_s = parts + phase[ECH__DP_LOSS] + (N > 1 ? add : 0) +
                            ech__operators_sum(first, ECH__PRICED_OPTIMIZER);
    price->step.comm_s = price->step.exposed_s = exposed;
    price->overhead_s += hand_over(p, price) + loading_beside(p, price);
    price->step.step_s = price->step.compute_s + exposed + price->overhead_s;
    const double out = (double)(N - 1) * (double)(m.inputs + m.weights + m.outputs);
    const double in = (double)(N - 1) * (double)(m.outputs + m.gradients);
    price->step.busiest_bytes = fmax(out, in);
    return ECH_OK;
}
