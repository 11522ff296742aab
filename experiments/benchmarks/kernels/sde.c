/* The noisy double well, stochastic Heun in single precision: what the SDE benchmark is held against.
 *
 * Two normals a step from the same addressed stream as the engine's: word (step, component) of the clone's key.
 */
#include "job.h"

#define FOR_LANES _Pragma("omp simd") for (int l = 0; l < LANES; l++)

#define LAW double_well
#define DIM 2
#define SENSORS 2
#define LANES 64

INLINE void double_well_initial(float x[DIM][LANES], const words key[LANES])
{
    FOR_LANES {
        x[0][l] = normal_from(bits_at(key[l], 0, 0));
        x[1][l] = normal_from(bits_at(key[l], 0, 1));
    }
}

INLINE void double_well_step(float x[DIM][LANES], float total[SENSORS][LANES], const job *j, float a,
                             const words key[LANES], uint32_t number)
{
    const float h = j->dt, half = h / 2, root = sqrtf(h), bx = j->params[0], by = j->params[1], pace = j->params[2];
    FOR_LANES {
        const float kx = root * bx * normal_from(bits_at(key[l], number, 0));
        const float ky = root * by * normal_from(bits_at(key[l], number, 1));
        const float x0 = x[0][l], y0 = x[1][l];
        const float dx = x0 - x0 * x0 * x0 + a, dy = pace * (x0 - y0);
        const float x1 = x0 + h * dx + kx, y1 = y0 + h * dy + ky;
        const float ex = x1 - x1 * x1 * x1 + a, ey = pace * (x1 - y1);
        x[0][l] = x0 + half * (dx + ex) + kx;
        x[1][l] = y0 + half * (dy + ey) + ky;
        total[0][l] += x[0][l];
        total[1][l] += x[1][l];
    }
}
#include "measure.h"
