/* One request of `measure`, as experiments/benchmarks/rivals.py fills it in. */
#ifndef SIMWORLDS_JOB_H
#define SIMWORLDS_JOB_H

#include "threefry.h"

typedef struct {
    words initial, process, sensor;             /* role keys */
    int ticks, substeps, start, stop, port, sd; /* sd: whether the window's sd is asked, not its mean */
    float dt;
    const float *drive;                         /* [tick], physical */
    const float *params;
    const float *offset, *gain, *sigma;         /* [sensor] */
    float *values;                              /* [clone] */
} job;

#endif
