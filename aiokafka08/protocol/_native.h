/* Read and write big-endian numbers at any address, and the slots of Python classes directly. */
#ifndef AIOKAFKA08_NATIVE_H
#define AIOKAFKA08_NATIVE_H

#include <Python.h>
#include <structmember.h>
#include <stdint.h>
#include <string.h>

typedef __int128 int128;

static inline int32_t get_int32(const char *at)
{
    uint32_t raw;
    memcpy(&raw, at, 4);
    return (int32_t)__builtin_bswap32(raw);
}

static inline int64_t get_int64(const char *at)
{
    uint64_t raw;
    memcpy(&raw, at, 8);
    return (int64_t)__builtin_bswap64(raw);
}

static inline void put_int32(char *at, int32_t value)
{
    uint32_t raw = __builtin_bswap32((uint32_t)value);
    memcpy(at, &raw, 4);
}

static inline void put_int64(char *at, int64_t value)
{
    uint64_t raw = __builtin_bswap64((uint64_t)value);
    memcpy(at, &raw, 8);
}

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the compiled twin needs a little-endian machine; the pure twin runs on all"
#endif

/* The offset in an instance at which a class with __slots__ keeps this slot; -1 with ImportError:
   the class and this build don't belong together. */
static Py_ssize_t slot_offset(PyObject *type, const char *name)
{
    Py_ssize_t offset = -1;
    PyObject *descriptor = PyObject_GetAttrString(type, name);
    if (descriptor == NULL)
        PyErr_Clear();
    else if (Py_TYPE(descriptor) == &PyMemberDescr_Type) {
        PyMemberDef *member = ((PyMemberDescrObject *)descriptor)->d_member;
        if (member->type == T_OBJECT_EX && !(member->flags & READONLY))
            offset = member->offset;
    }
    Py_XDECREF(descriptor);
    if (offset < 0)
        PyErr_Format(PyExc_ImportError, "%R has no slot %s", type, name);
    return offset;
}

/* The object in a slot, a borrowed reference; NULL if the slot is empty. */
static inline PyObject *slot_of(PyObject *instance, Py_ssize_t offset)
{
    return *(PyObject **)((char *)instance + offset);
}

/* Write a slot. Steals the reference; doesn't release the object that was there. */
static inline void fill_slot(PyObject *instance, Py_ssize_t offset, PyObject *value)
{
    *(PyObject **)((char *)instance + offset) = value;
}

/* Call this before the items of a tuple change, or after it was allocated by PyType_GenericAlloc: from
   Python 3.14 on a tuple keeps its hash. */
static inline void forget_hash(PyObject *tuple)
{
#if PY_VERSION_HEX >= 0x030e0000
    ((PyTupleObject *)tuple)->ob_hash = -1;
#else
    (void)tuple;
#endif
}

static int track_and_assign(PyObject *instance, PyObject *name, PyObject *value)
{
    if (!PyObject_GC_IsTracked(instance))
        PyObject_GC_Track(instance);
    return PyObject_GenericSetAttr(instance, name, value);
}

/* Have the garbage collector track an untracked instance of this class from the first assignment
   to one of its attributes on: then it may be in a cycle. (CPython does the same with dicts.) */
static int track_when_assigned(PyObject *type)
{
    PyTypeObject *class = (PyTypeObject *)type;
    if (class->tp_setattro == track_and_assign)
        return 0;
    if (class->tp_setattro != PyObject_GenericSetAttr) {
        PyErr_Format(PyExc_ImportError, "%R has a __setattr__ of its own", type);
        return -1;
    }
    class->tp_setattro = track_and_assign;
    PyType_Modified(class);
    return 0;
}

#endif
