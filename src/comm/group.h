/* The public face of a group of ranks. */
#ifndef ECH_COMM_GROUP_H
#define ECH_COMM_GROUP_H

#include "comm/comm.h"

struct ech_group {
    ech__comm *comm;
    bool owned; /* the comm is closed with the group */
};

#endif
