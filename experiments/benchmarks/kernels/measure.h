/* The work of `measure` around a law's steps: include it once a law, after its `initial` and `step`.
 *
 * The law is named by macros: LAW (the kernel's name), DIM state variables, of which the first SENSORS are
 * read, LANES clones side by side, so that gcc makes vector code of each loop over lanes. It has
 *   void LAW_initial(float x[DIM][LANES], const words key[LANES]);
 *   void LAW_step(float x[DIM][LANES], float total[SENSORS][LANES], const job *j, float drive,
 *                 const words key[LANES], uint32_t number);
 * of which the second makes one step under the tick's drive and adds the sensors to `total`.
 */
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define ROW __attribute__((aligned(64)))

static void JOIN(LAW, _block)(const job *j, uint32_t first, float *values)
{
    ROW float x[DIM][LANES], total[SENSORS][LANES], begun[SENSORS][LANES], reading[SENSORS][LANES];
    ROW float mean[LANES] = {0}, square[LANES] = {0};
    ROW words initial[LANES], process[LANES], sensor[LANES];
    FOR_LANES {
        initial[l] = clone_words(j->initial, first + (uint32_t)l);
        process[l] = clone_words(j->process, first + (uint32_t)l);
        sensor[l] = clone_words(j->sensor, first + (uint32_t)l);
    }
    JOIN(LAW, _initial)(x, initial);
    float count = 0;
    for (int tick = 0; tick < j->ticks; tick++) {
        for (int s = 0; s < SENSORS; s++)
            FOR_LANES { begun[s][l] = x[s][l]; total[s][l] = 0; }
        for (int k = 0; k < j->substeps; k++)
            JOIN(LAW, _step)(x, total, j, j->drive[tick], process, (uint32_t)(tick * j->substeps + k));
        for (int s = 0; s < SENSORS; s++)
            FOR_LANES {
                const float raw = (total[s][l] + (begun[s][l] - x[s][l]) / 2) / (float)j->substeps;
                const float z = normal_from(bits_at(sensor[l], (uint32_t)tick, (uint32_t)s));
                reading[s][l] = j->offset[s] + j->gain[s] * raw + j->sigma[s] * z;
            }
        if (tick >= j->start && tick < j->stop) {
            count += 1;
            FOR_LANES {
                const float off = reading[j->port][l] - mean[l];
                mean[l] += off / count;
                square[l] += off * (reading[j->port][l] - mean[l]);
            }
        }
    }
    FOR_LANES values[l] = j->sd ? sqrtf(square[l] / count) : mean[l];
}

/* The statistic of clones first .. first + count - 1; a last block runs whole and is written in part. */
void LAW(const job *j, int first, int count)
{
    for (int at = first; at < first + count; at += LANES) {
        ROW float values[LANES];
        JOIN(LAW, _block)(j, (uint32_t)at, values);
        const int left = first + count - at;
        memcpy(j->values + at, values, sizeof(float) * (size_t)(left < LANES ? left : LANES));
    }
}

#undef JOIN
#undef JOIN_
#undef ROW
#undef LAW
#undef DIM
#undef SENSORS
#undef LANES
