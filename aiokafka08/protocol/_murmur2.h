/* The Java client's murmur2 hash of a key; `_murmur2_py` is the reference. */
#ifndef AIOKAFKA08_MURMUR2_H
#define AIOKAFKA08_MURMUR2_H

#include <Python.h>
#include <stdint.h>

static inline uint32_t murmur2_of(const unsigned char *at, Py_ssize_t left)
{
    uint32_t hash = 0x9747B28Cu ^ (uint32_t)left;
    uint32_t word;
    while (left >= 4) {
        word = at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
        word *= 0x5BD1E995u;
        hash = (hash * 0x5BD1E995u) ^ ((word ^ word >> 24) * 0x5BD1E995u);
        at += 4;
        left -= 4;
    }
    if (left) {
        word = at[0];
        if (left > 1)
            word |= (uint32_t)at[1] << 8;
        if (left > 2)
            word |= (uint32_t)at[2] << 16;
        hash = (hash ^ word) * 0x5BD1E995u;
    }
    hash = (hash ^ hash >> 13) * 0x5BD1E995u;
    return hash ^ hash >> 15;
}

/* The index among `count` partitions that the Java client gives a key. */
static inline uint32_t partition_index_of(const char *key, Py_ssize_t size, uint32_t count)
{
    return (murmur2_of((const unsigned char *)key, size) & 0x7FFFFFFFu) % count;
}

#endif
