/* The CRC-32 of zlib (polynomial 0x04C11DB7, reflected), fast for inputs of about 100 bytes; and
 * CRC-32C (polynomial 0x1EDC6F41, reflected), which record batches have.
 *
 * The tables process eight bytes per step, on any machine. On x86 with PCLMULQDQ, inputs of
 * CRC_FOLD_LEAST bytes or more are folded by carry-less multiplication (V. Gopal et al., "Fast CRC
 * Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009). zlib's function
 * has a high cost per call; docs/performance.md has the measurements. CRC-32C is an instruction of
 * SSE4.2; elsewhere it takes the tables too.
 */
#ifndef AIOKAFKA08_CRC32_H
#define AIOKAFKA08_CRC32_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define CRC_POLYNOMIAL 0xEDB88320u
#define CRC32C_POLYNOMIAL 0x82F63B78u
#define CRC_FOLD_LEAST 64

typedef uint32_t CrcTables[8][256];

static CrcTables crc_tables, crc32c_tables;
static int crc_folds, crc32c_has_instruction;

/* `state` is the complement of the CRC, in all functions that take it. */
static uint32_t crc_by_tables(CrcTables tables, uint32_t state, const uint8_t *data, size_t length)
{
    while (length >= 8) {
        uint32_t low = state ^ ((uint32_t)data[0] | (uint32_t)data[1] << 8 |
                                (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24);
        state = tables[7][low & 0xFF] ^ tables[6][low >> 8 & 0xFF] ^
                tables[5][low >> 16 & 0xFF] ^ tables[4][low >> 24] ^
                tables[3][data[4]] ^ tables[2][data[5]] ^
                tables[1][data[6]] ^ tables[0][data[7]];
        data += 8;
        length -= 8;
    }
    while (length--)
        state = state >> 8 ^ tables[0][(state ^ *data++) & 0xFF];
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
    return crc_by_tables(crc_tables, state, (const uint8_t *)blocks, length);
}
#undef CRC_FOLD_OVER

__attribute__((target("sse4.2")))
static uint32_t crc32c_by_instruction(uint32_t state, const uint8_t *data, size_t length)
{
    uint64_t wide = state, word;
    while (length >= 8) {
        memcpy(&word, data, 8);
        wide = _mm_crc32_u64(wide, word);
        data += 8;
        length -= 8;
    }
    state = (uint32_t)wide;
    while (length--)
        state = _mm_crc32_u8(state, *data++);
    return state;
}
#endif

static void crc_fill(CrcTables tables, uint32_t polynomial)
{
    int index, bit, table;
    for (index = 0; index < 256; index++) {
        uint32_t value = (uint32_t)index;
        for (bit = 0; bit < 8; bit++)
            value = value >> 1 ^ (value & 1 ? polynomial : 0);
        tables[0][index] = value;
    }
    for (table = 1; table < 8; table++)
        for (index = 0; index < 256; index++) {
            uint32_t value = tables[table - 1][index];
            tables[table][index] = value >> 8 ^ tables[0][value & 0xFF];
        }
}

/* Fill the tables and detect the CPU's features; call this before crc_of and crc32c_of. */
static void crc_prepare(void)
{
    crc_fill(crc_tables, CRC_POLYNOMIAL);
    crc_fill(crc32c_tables, CRC32C_POLYNOMIAL);
#ifdef CRC_HAS_FOLD
    __builtin_cpu_init();
    crc_folds = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
    crc32c_has_instruction = __builtin_cpu_supports("sse4.2");
#endif
}

static inline uint32_t crc_of(const char *data, size_t length)
{
#ifdef CRC_HAS_FOLD
    if (length >= CRC_FOLD_LEAST && crc_folds)
        return ~crc_fold(~(uint32_t)0, (const uint8_t *)data, length);
#endif
    return ~crc_by_tables(crc_tables, ~(uint32_t)0, (const uint8_t *)data, length);
}

/* With `tables` the instruction isn't used: for tests. */
static inline uint32_t crc32c_of(const char *data, size_t length, int tables)
{
#ifdef CRC_HAS_FOLD
    if (crc32c_has_instruction && !tables)
        return ~crc32c_by_instruction(~(uint32_t)0, (const uint8_t *)data, length);
#endif
    return ~crc_by_tables(crc32c_tables, ~(uint32_t)0, (const uint8_t *)data, length);
}

#endif
