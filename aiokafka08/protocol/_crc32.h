/* The CRC-32 of zlib (polynomial 0x04C11DB7, reflected), fast for inputs of about 100 bytes.
 *
 * The tables process eight bytes per step, on any machine. On x86 with PCLMULQDQ, inputs of
 * CRC_FOLD_LEAST bytes or more are folded by carry-less multiplication (V. Gopal et al., "Fast CRC
 * Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009). zlib's function
 * has a high cost per call; docs/performance.md has the measurements.
 */
#ifndef AIOKAFKA08_CRC32_H
#define AIOKAFKA08_CRC32_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define CRC_POLYNOMIAL 0xEDB88320u
#define CRC_FOLD_LEAST 64

static uint32_t crc_tables[8][256];
static int crc_folds;

/* `state` is the complement of the CRC, here and in crc_fold. */
static uint32_t crc_by_tables(uint32_t state, const uint8_t *data, size_t length)
{
    while (length >= 8) {
        uint32_t low = state ^ ((uint32_t)data[0] | (uint32_t)data[1] << 8 |
                                (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24);
        state = crc_tables[7][low & 0xFF] ^ crc_tables[6][low >> 8 & 0xFF] ^
                crc_tables[5][low >> 16 & 0xFF] ^ crc_tables[4][low >> 24] ^
                crc_tables[3][data[4]] ^ crc_tables[2][data[5]] ^
                crc_tables[1][data[6]] ^ crc_tables[0][data[7]];
        data += 8;
        length -= 8;
    }
    while (length--)
        state = state >> 8 ^ crc_tables[0][(state ^ *data++) & 0xFF];
    return state;
}

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <immintrin.h>
#define CRC_HAS_FOLD 1

/* The constants are x^n mod P for the distances folded over (512, 128 and 64 bits), bit-reflected,
 * then P itself and the quotient of Barrett's reduction. */
__attribute__((target("pclmul,sse4.1")))
static uint32_t crc_fold(uint32_t state, const uint8_t *data, size_t length)
{
    const __m128i by_512 = _mm_set_epi64x(0x1c6e41596LL, 0x154442bd4LL);
    const __m128i by_128 = _mm_set_epi64x(0x0ccaa009eLL, 0x1751997d0LL);
    const __m128i by_64 = _mm_set_epi64x(0, 0x163cd6124LL);
    const __m128i barrett = _mm_set_epi64x(0x1f7011641LL, 0x1db710641LL);
    const __m128i low_32 = _mm_set_epi32(0, 0, 0, -1);
    const __m128i *blocks = (const __m128i *)data;
    __m128i lanes[4], folded;
    int lane;

#define CRC_FOLD_OVER(value, by, next) \
    _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(value, by, 0x00), \
                                _mm_clmulepi64_si128(value, by, 0x11)), next)

    for (lane = 0; lane < 4; lane++)
        lanes[lane] = _mm_loadu_si128(blocks + lane);
    lanes[0] = _mm_xor_si128(lanes[0], _mm_cvtsi32_si128((int)state));
    blocks += 4;
    length -= 64;
    while (length >= 64) {
        for (lane = 0; lane < 4; lane++)
            lanes[lane] = CRC_FOLD_OVER(lanes[lane], by_512, _mm_loadu_si128(blocks + lane));
        blocks += 4;
        length -= 64;
    }
    folded = lanes[0];
    for (lane = 1; lane < 4; lane++)
        folded = CRC_FOLD_OVER(folded, by_128, lanes[lane]);
    while (length >= 16) {
        folded = CRC_FOLD_OVER(folded, by_128, _mm_loadu_si128(blocks));
        blocks++;
        length -= 16;
    }
    folded = _mm_xor_si128(_mm_srli_si128(folded, 8),
                           _mm_clmulepi64_si128(folded, by_128, 0x10));
    folded = _mm_xor_si128(_mm_srli_si128(folded, 4),
                           _mm_clmulepi64_si128(_mm_and_si128(folded, low_32), by_64, 0x00));
    lanes[0] = _mm_clmulepi64_si128(_mm_and_si128(folded, low_32), barrett, 0x10);
    lanes[0] = _mm_clmulepi64_si128(_mm_and_si128(lanes[0], low_32), barrett, 0x00);
    state = (uint32_t)_mm_extract_epi32(_mm_xor_si128(folded, lanes[0]), 1);
    return crc_by_tables(state, (const uint8_t *)blocks, length);
}
#undef CRC_FOLD_OVER
#endif

/* Fill the tables and detect the CPU's features; call this before crc_of. */
static void crc_prepare(void)
{
    int index, bit, table;
    for (index = 0; index < 256; index++) {
        uint32_t value = (uint32_t)index;
        for (bit = 0; bit < 8; bit++)
            value = value >> 1 ^ (value & 1 ? CRC_POLYNOMIAL : 0);
        crc_tables[0][index] = value;
    }
    for (table = 1; table < 8; table++)
        for (index = 0; index < 256; index++) {
            uint32_t value = crc_tables[table - 1][index];
            crc_tables[table][index] = value >> 8 ^ crc_tables[0][value & 0xFF];
        }
#ifdef CRC_HAS_FOLD
    __builtin_cpu_init();
    crc_folds = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
#endif
}

static inline uint32_t crc_of(const char *data, size_t length)
{
#ifdef CRC_HAS_FOLD
    if (length >= CRC_FOLD_LEAST && crc_folds)
        return ~crc_fold(~(uint32_t)0, (const uint8_t *)data, length);
#endif
    return ~crc_by_tables(~(uint32_t)0, (const uint8_t *)data, length);
}

#endif
