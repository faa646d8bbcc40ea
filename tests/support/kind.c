#include "support/kind.h"
#include "support/cmocka_first.h"

ech__device_kind asked_kind(void)
{
    ech__device_kind kind;
    assert_int_equal(ech__device_asked(NULL, &kind), ECH_OK);
    return kind;
}

bool on_cpu(void)
{
    return asked_kind() == ECH__DEVICE_CPU;
}
