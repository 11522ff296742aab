/* The random numbers of simworlds/keys.py in C: threefry2x32 with 20 rounds, and normals by inversion.
 *
 * All functions are free of branches, so that gcc turns a loop over trajectories into vector code.
 * `normal_from` takes the same rational function as keys.py.
 */
#ifndef SIMWORLDS_THREEFRY_H
#define SIMWORLDS_THREEFRY_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

typedef struct { uint32_t high, low; } words;

INLINE uint32_t rotated(uint32_t x, int by) { return (x << by) | (x >> (32 - by)); }

#define THREEFRY_ROUND(r) x += y; y = rotated(y, r) ^ x;
#define THREEFRY_EVEN THREEFRY_ROUND(13) THREEFRY_ROUND(15) THREEFRY_ROUND(26) THREEFRY_ROUND(6)
#define THREEFRY_ODD THREEFRY_ROUND(17) THREEFRY_ROUND(29) THREEFRY_ROUND(16) THREEFRY_ROUND(24)

/* Encrypt a counter under a key. */
INLINE words threefry2x32(words key, uint32_t high, uint32_t low)
{
    const uint32_t a = key.high, b = key.low, c = a ^ b ^ 0x1BD11BDAu;
    uint32_t x = high + a, y = low + b;
    THREEFRY_EVEN x += b; y += c + 1u;
    THREEFRY_ODD  x += c; y += a + 2u;
    THREEFRY_EVEN x += a; y += b + 3u;
    THREEFRY_ODD  x += b; y += c + 4u;
    THREEFRY_EVEN x += c; y += a + 5u;
    words out = {x, y};
    return out;
}

/* The key of a clone under a role: simworlds.keys.clone_words. */
INLINE words clone_words(words role, uint32_t clone) { return threefry2x32(role, 0u, clone); }

/* The word at (step, component): simworlds.keys.bits. */
INLINE uint32_t bits_at(words key, uint32_t step, uint32_t component)
{
    words out = threefry2x32(key, step, component);
    return out.high ^ out.low;
}

/* A number inside (0, 1): the centre of one of 2^23 cells. */
INLINE float unit_interval(uint32_t word) { return ((float)(int32_t)(word >> 9) + 0.5f) * 0x1p-23f; }

/* log(x) of a positive normal number, in plain arithmetic (Cephes logf): vectorises without a library. */
INLINE float plain_log(float x)
{
    uint32_t pattern;
    memcpy(&pattern, &x, 4);
    float exponent = (float)((int32_t)(pattern >> 23) - 126);
    pattern = (pattern & 0x007fffffu) | 0x3f000000u;
    float m;
    memcpy(&m, &pattern, 4);
    const int small = m < 0.70710678f;
    exponent -= small ? 1.0f : 0.0f;
    m = (small ? m + m : m) - 1.0f;
    const float z = m * m;
    float p = 7.0376836292e-2f;
    p = p * m - 1.1514610310e-1f;
    p = p * m + 1.1676998740e-1f;
    p = p * m - 1.2420140846e-1f;
    p = p * m + 1.4249322787e-1f;
    p = p * m - 1.6668057665e-1f;
    p = p * m + 2.0000714765e-1f;
    p = p * m - 2.4999993993e-1f;
    p = p * m + 3.3333331174e-1f;
    p = p * m * z;
    p += -2.12194440e-4f * exponent;
    p += -0.5f * z;
    return m + p + 0.693359375f * exponent;
}

/* A standard normal from a word: simworlds.keys.normal_from, its rational function of w = -log 4u(1 - u). */
INLINE float normal_from(uint32_t word)
{
    const float u = unit_interval(word), w = -plain_log(4.0f * u * (1.0f - u));
    float above = 3.4168737613821275e-05f, below = 1.2794151091287971e-06f;
    above = above * w + 9.11632598485345e-04f;
    below = below * w + 1.7895597439865807e-04f;
    above = above * w + 1.0997735019382277e-02f;
    below = below * w + 1.8852985668750945e-03f;
    above = above * w + 8.438645547607644e-02f;
    below = below * w + 3.218852318594578e-02f;
    above = above * w + 4.339555363538561e-01f;
    below = below * w + 8.444744380924485e-02f;
    above = above * w + 1.2533141556757215f;
    below = below * w + 1.0f;
    return (2.0f * u - 1.0f) * (above / below);
}

#endif
