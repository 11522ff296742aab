/* Gillespie's direct method, one run after another: the laws of experiments/benchmarks/ssa.py.
 *
 * Each law is stated once, and compiled with two generators. The threefry form draws the numbers of
 * simworlds/exact.py, event k of run i at (k, 0) and (k, 1) under the run's key, so that its runs are ours one
 * by one. The xoshiro256+ form (Blackman & Vigna 2021, doi:10.1145/3460772) is what C code in search of speed
 * would use: one 64-bit number an event, its upper half for the time and its lower half for the reaction.
 */
#include "threefry.h"

typedef struct {
    words role;       /* the key under which each run has its own */
    const float *rate;
    float *end;       /* [run][species] */
    float until;
} job;

typedef struct { uint64_t s[4]; } xoshiro;

INLINE uint64_t splitmix(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

INLINE uint64_t next(xoshiro *x)
{
    uint64_t *s = x->s;
    const uint64_t result = s[0] + s[3], t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = (s[3] << 45) | (s[3] >> 19);
    return result;
}

#define XOSHIRO_BEGIN \
    uint64_t seed = ((uint64_t)work->role.high << 32 | work->role.low) + (uint64_t)first; \
    xoshiro generator; \
    for (int k = 0; k < 4; k++) generator.s[k] = splitmix(&seed);
#define XOSHIRO_RUN(run)
#define XOSHIRO_DRAW \
    const uint64_t drawn = next(&generator); \
    const uint32_t one = (uint32_t)(drawn >> 32), two = (uint32_t)drawn;

#define THREEFRY_BEGIN
#define THREEFRY_RUN(run) const words key = clone_words(work->role, (uint32_t)(run)); uint32_t event = 0;
#define THREEFRY_DRAW \
    const uint32_t one = bits_at(key, event, 0), two = bits_at(key, event, 1); \
    event++;

/* A run: START, then events of propensities RATES, accumulated in `total`, and reactions REACT by `mark`. */
#define SSA(NAME, RNG, SPECIES, START, RATES, REACT, END) \
    int64_t NAME(const job *work, long first, long count) \
    { \
        int64_t events = 0; \
        const float *rate = work->rate; \
        RNG##_BEGIN \
        for (long run = first; run < first + count; run++) { \
            float time = 0; \
            RNG##_RUN(run) \
            START \
            for (;;) { \
                RATES \
                if (total <= 0) break; \
                RNG##_DRAW \
                time -= logf(unit_interval(one)) / total; \
                if (time > work->until) break; \
                const float mark = unit_interval(two) * total; \
                REACT \
                events++; \
            } \
            float *end = work->end + SPECIES * run; \
            END \
        } \
        return events; \
    }

/* 2 P -> D and back; rates: c1, c2, P at the start. */
#define DIMER_START float p = rate[2], d = 0;
#define DIMER_RATES const float a = rate[0] * p * (p - 1), total = a + rate[1] * d;
#define DIMER_REACT const float way = a > mark ? 1.0f : -1.0f; p -= 2 * way; d += way;
#define DIMER_END end[0] = p; end[1] = d;
SSA(dimer_threefry, THREEFRY, 2, DIMER_START, DIMER_RATES, DIMER_REACT, DIMER_END)
SSA(dimer_xoshiro, XOSHIRO, 2, DIMER_START, DIMER_RATES, DIMER_REACT, DIMER_END)

/* 2 X -> 3 X and back, 0 -> X and back (Schloegl 1972); rates: c1 ... c4, X at the start. */
#define SCHLOEGL_START float x = rate[4];
#define SCHLOEGL_RATES \
    const float a = rate[0] * x * (x - 1), b = a + rate[1] * x * (x - 1) * (x - 2); \
    const float c = b + rate[2], total = c + rate[3] * x;
#define SCHLOEGL_REACT x += (a > mark) | ((c > mark) & (b <= mark)) ? 1.0f : -1.0f;
#define SCHLOEGL_END end[0] = x;
SSA(schloegl_threefry, THREEFRY, 1, SCHLOEGL_START, SCHLOEGL_RATES, SCHLOEGL_REACT, SCHLOEGL_END)
SSA(schloegl_xoshiro, XOSHIRO, 1, SCHLOEGL_START, SCHLOEGL_RATES, SCHLOEGL_REACT, SCHLOEGL_END)
