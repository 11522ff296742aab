/* The work of simworlds/adaptive.py on the law of experiments/benchmarks/adaptive.py, one clone after another.
 *
 * A Van der Pol oscillator, x' = y, y' = mu (1 - x^2) y - x, by Tsitouras' pair with the same controller, the
 * tick mean of x integrated along, sensor noise from the same words, and the mean of a window. Scalar
 * code: clones take unlike steps, so there is nothing for gcc to make vectors of across them.
 */
#include "threefry.h"

enum { TICKS_MOST_ATTEMPTS = 100000 };

typedef struct { float x, y, mean; } point;

INLINE point rates(point p, float mu)
{
    point out = {p.y, mu * (1.0f - p.x * p.x) * p.y - p.x, p.x};
    return out;
}

INLINE point plus(point p, float h, point v)
{
    point out = {p.x + h * v.x, p.y + h * v.y, p.mean + h * v.mean};
    return out;
}

INLINE point sum2(float a, point p, float b, point q)
{
    point out = {a * p.x + b * q.x, a * p.y + b * q.y, a * p.mean + b * q.mean};
    return out;
}

INLINE point scaled(float a, point p)
{
    point out = {a * p.x, a * p.y, a * p.mean};
    return out;
}

INLINE float squared(float x) { return x * x; }

INLINE float scale_of(float before, float after, float rtol, float atol)
{
    return atol + rtol * fmaxf(fabsf(before), fabsf(after));
}

/* One clone from its first tick to its last; returns the window's mean of port 0, or NaN if it gave up. */
static float one(point p, const float *mu, int ticks, int start, int stop, words sensor, float sigma,
                 float range, float rtol, float atol, float first_step, int64_t *attempts)
{
    float size = first_step, last = -9.2103404f, mean = 0.0f;
    int rejected = 0;
    for (int tick = 0; tick < ticks; tick++) {
        float left = 1.0f;
        const float m = mu[tick];
        p.mean = 0.0f;
        point k1 = rates(p, m);
        for (int tries = 0; left > 0.0f; tries++) {
            const int ends = size >= left;
            const float h = ends ? left : fminf(size, left / 2);
            const point k2 = rates(plus(p, h * 0.161f, k1), m);
            const point k3 = rates(plus(p, h, sum2(-0.008480655492356989f, k1, 0.335480655492357f, k2)), m);
            point s = sum2(2.8971530571054935f, k1, -6.359448489975075f, k2);
            const point k4 = rates(plus(p, h, plus(s, 4.3622954328695815f, k3)), m);
            s = sum2(5.325864828439257f, k1, -11.748883564062828f, k2);
            s = plus(plus(s, 7.4955393428898365f, k3), -0.09249506636175525f, k4);
            const point k5 = rates(plus(p, h, s), m);
            s = plus(sum2(5.86145544294642f, k1, -12.92096931784711f, k2), 8.159367898576159f, k3);
            s = plus(plus(s, -0.071584973281401f, k4), -0.028269050394068383f, k5);
            const point k6 = rates(plus(p, h, s), m);
            s = plus(sum2(0.09646076681806523f, k1, 0.01f, k2), 0.4798896504144996f, k3);
            s = plus(plus(plus(s, 1.379008574103742f, k4), -3.290069515436081f, k5), 2.324710524099774f, k6);
            const point moved = plus(p, h, s);
            const point k7 = rates(moved, m);
            point e = sum2(0.0017800110522257773f, k1, 0.0008164344596567463f, k2);
            e = plus(plus(e, -0.007880878010261994f, k3), 0.1447110071732629f, k4);
            e = plus(plus(plus(e, -0.5823571654525552f, k5), 0.45808210592918686f, k6), -1.0f / 66.0f, k7);
            e = scaled(h, e);
            const float square = (squared(e.x / scale_of(p.x, moved.x, rtol, atol))
                + squared(e.y / scale_of(p.y, moved.y, rtol, atol)) + squared(e.mean / (rtol * range))) / 3.0f;
            const float log_error = 0.5f * logf(fmaxf(square, 1e-16f));
            const int fine = square <= 1.0f;
            float factor = 0.9f * expf(-0.17f * log_error + (fine ? 0.04f * last : 0.0f));
            factor = fminf(fmaxf(factor, 0.2f), fine && !rejected ? 10.0f : 1.0f);
            if (!isfinite(square)) factor = 0.2f;
            float wanted = h * factor;
            (*attempts)++;
            if (fine) {
                if (h < size) wanted = fmaxf(wanted, size);
                p = moved;
                k1 = k7;
                left = ends ? 0.0f : left - h;
                last = fmaxf(log_error, -9.2103404f);
            }
            size = fminf(wanted, 1.0f);
            rejected = !fine;
            if (tries > TICKS_MOST_ATTEMPTS || (!fine && size < 4.7683716e-7f)) return NAN;
        }
        if (tick >= start && tick < stop) {
            const float value = p.mean + sigma * normal_from(bits_at(sensor, (uint32_t)tick, 0u));
            mean += (value - mean) / (float)(tick - start + 1);
        }
    }
    return mean;
}

/* Means ``[count]`` of items ``first .. first + count - 1``; item i is clone i % clones of request i / clones. */
void adaptive(int64_t first, int64_t count, int64_t clones, const float *mu, const uint32_t *initial,
              const uint32_t *sensor, int ticks, int start, int stop, float sigma, float range,
              float rtol, float atol, float first_step, float *values, int64_t *attempts)
{
    for (int64_t item = first; item < first + count; item++) {
        const int64_t request = item / clones;
        const uint32_t clone = (uint32_t)(item % clones);
        const words begin_key = {initial[2 * request], initial[2 * request + 1]};
        const words sensor_key = {sensor[2 * request], sensor[2 * request + 1]};
        const words begin = clone_words(begin_key, clone);
        const point p = {4.0f * unit_interval(bits_at(begin, 0u, 0u)) - 2.0f,
                         2.0f * unit_interval(bits_at(begin, 0u, 1u)) - 1.0f, 0.0f};
        attempts[item] = 0;
        values[item] = one(p, mu + request * ticks, ticks, start, stop, clone_words(sensor_key, clone), sigma,
                           range, rtol, atol, first_step, attempts + item);
    }
}
