/* Lorenz 63 and Lorenz 96, RK4 in single precision: what the ODE benchmark is held against. */
#include "job.h"

#define FOR_LANES _Pragma("omp simd") for (int l = 0; l < LANES; l++)

/* Lorenz 63 */
#define LAW lorenz63
#define DIM 3
#define SENSORS 3
#define LANES 64

INLINE void lorenz63_initial(float x[DIM][LANES], const words key[LANES])
{
    FOR_LANES {
        x[0][l] = 1.0f + normal_from(bits_at(key[l], 0, 0));
        x[1][l] = 1.0f + normal_from(bits_at(key[l], 0, 1));
        x[2][l] = 20.0f + normal_from(bits_at(key[l], 0, 2));
    }
}

#define DRIFT(dx, dy, dz, x, y, z) \
    const float dx = sigma * ((y) - (x)); \
    const float dy = (x) * (rho - (z)) - (y); \
    const float dz = (x) * (y) - beta * (z);

INLINE void lorenz63_step(float x[DIM][LANES], float total[SENSORS][LANES], const job *j, float rho,
                          const words key[LANES], uint32_t number)
{
    const float h = j->dt, half = h / 2, sixth = h / 6, sigma = j->params[0], beta = j->params[1];
    (void)key, (void)number;
    FOR_LANES {
        const float x0 = x[0][l], y0 = x[1][l], z0 = x[2][l];
        DRIFT(ax, ay, az, x0, y0, z0)
        DRIFT(bx, by, bz, x0 + half * ax, y0 + half * ay, z0 + half * az)
        DRIFT(cx, cy, cz, x0 + half * bx, y0 + half * by, z0 + half * bz)
        DRIFT(dx, dy, dz, x0 + h * cx, y0 + h * cy, z0 + h * cz)
        x[0][l] = x0 + sixth * (ax + 2 * (bx + cx) + dx);
        x[1][l] = y0 + sixth * (ay + 2 * (by + cy) + dy);
        x[2][l] = z0 + sixth * (az + 2 * (bz + cz) + dz);
        total[0][l] += x[0][l];
        total[1][l] += x[1][l];
        total[2][l] += x[2][l];
    }
}
#undef DRIFT
#include "measure.h"

/* Lorenz 96 on 40 sites */
#define LAW lorenz96
#define DIM 40
#define SENSORS 3
#define LANES 16

INLINE void lorenz96_initial(float x[DIM][LANES], const words key[LANES])
{
    for (int k = 0; k < DIM; k++)
        FOR_LANES x[k][l] = normal_from(bits_at(key[l], 0, (uint32_t)k));
}

/* One stage: the slope at `at`, added into `sum` with a weight, and the point of the next stage. */
INLINE void lorenz96_stage(float at[DIM][LANES], float x[DIM][LANES], float sum[DIM][LANES],
                           float next[DIM][LANES], float weight, float ahead, float d, float F)
{
    for (int k = 0; k < DIM; k++) {
        const float *up = at[k + 1 == DIM ? 0 : k + 1], *down = at[k < 2 ? k - 2 + DIM : k - 2];
        const float *before = at[k < 1 ? DIM - 1 : k - 1], *here = at[k];
        FOR_LANES {
            const float slope = (up[l] - down[l]) * before[l] - d * here[l] + F;
            sum[k][l] += weight * slope;
            next[k][l] = x[k][l] + ahead * slope;
        }
    }
}

INLINE void lorenz96_step(float x[DIM][LANES], float total[SENSORS][LANES], const job *j, float F,
                          const words key[LANES], uint32_t number)
{
    float one[DIM][LANES] __attribute__((aligned(64))), two[DIM][LANES] __attribute__((aligned(64)));
    float sum[DIM][LANES] __attribute__((aligned(64)));
    const float h = j->dt, d = j->params[0];
    (void)key, (void)number;
    memset(sum, 0, sizeof sum);
    lorenz96_stage(x, x, sum, one, 1.0f, h / 2, d, F);
    lorenz96_stage(one, x, sum, two, 2.0f, h / 2, d, F);
    lorenz96_stage(two, x, sum, one, 2.0f, h, d, F);
    lorenz96_stage(one, x, sum, two, 1.0f, h, d, F);
    for (int k = 0; k < DIM; k++)
        FOR_LANES x[k][l] += h / 6 * sum[k][l];
    for (int s = 0; s < SENSORS; s++)
        FOR_LANES total[s][l] += x[s][l];
}
#include "measure.h"
