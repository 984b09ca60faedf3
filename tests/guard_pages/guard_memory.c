/* Memory of NumPy's arrays between inaccessible pages, for tests.

   NumPy's default handler (NEP 49) is pointed at the functions here, so that arrays of all threads are affected, whatever made
   them. Small arrays are in slots of one region: pages of data, then a page nobody can access; the one before is the last
   slot's. Large ones have maps of their own. An array ends where its pages end ("back"), or starts where they start ("front"),
   so that the first byte outside on that side is a fault; the unused part of its pages holds a pattern, which is compared
   when the array is freed. Freed pages are inaccessible until as many others of their size were freed after them.

   Built without Python's headers: the few functions of Python's interface are declared here and found in the process. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

extern int PyGILState_Check(void);
extern void *PyEval_GetFrame(void);
extern void *PyFrame_GetBack(void *);
extern void *PyFrame_GetCode(void *);
extern int PyFrame_GetLineNumber(void *);
extern void *PyObject_GetAttrString(void *, const char *);
extern const char *PyUnicode_AsUTF8(void *);
extern void Py_IncRef(void *);
extern void Py_DecRef(void *);

enum {
    PAGE = 4096,
    LARGEST_SLOT_PAGES = 256,  /* of data; larger arrays have maps of their own */
    QUARANTINED_PAGES = 2048,  /* of each size of slot, at most, but for 4 slots */
    QUARANTINED_MAPS = 64,
    FRAMES = 3,
    MOST_SLOTS = 1 << 21,
    MOST_LARGE = 1 << 12,
};
static const size_t REGION_BYTES = (size_t)16 << 30;
static const size_t FILLED_BYTES = (size_t)64 << 20; /* of an array, at most: beyond, filling costs more than it finds */
static const unsigned char UNUSED = 0xA7;            /* in the rest of an array's pages */

typedef struct {
    uint64_t first;   /* page of its data in the region; an address for maps of their own */
    uint64_t size;    /* bytes of the array */
    uint64_t serial;  /* how many arrays were made before */
    uint32_t pages;   /* of data */
    uint32_t next;    /* in the list of free slots */
    uint8_t is_live, is_guarded_in_front;
    int lines[FRAMES];
    const char *files[FRAMES];
} Slot;

typedef struct {
    uint32_t oldest, latest, count;
} Queue;

typedef struct {
    void *context;
    void *(*malloc)(void *, size_t);
    void *(*calloc)(void *, size_t, size_t);
    void *(*realloc)(void *, void *, size_t);
    void (*free)(void *, void *, size_t);
} Allocator;

typedef struct {
    char name[127];
    uint8_t version;
    Allocator allocator;
} Handler;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Allocator system_memory; /* NumPy's own functions */
static unsigned char *region;
static uint64_t used_pages;
static uint32_t *slot_of_page; /* in the region; 0 where there is none yet */
static Slot *slots;
static uint32_t slot_count = 1;
static Queue queues[LARGEST_SLOT_PAGES + 1];
static Slot *large; /* a ring: freed ones are unmapped when they are needed again */
static uint32_t large_frees;
static uint64_t serial, fallbacks, live, most_live;
static int is_front, fill, report_to = 2;
static char context[512];
static struct sigaction before_segv, before_bus;

static size_t pages_of(size_t size) { return size ? (size + PAGE - 1) / PAGE : 1; }

/* Where the array of some pages starts. */
static unsigned char *placed(unsigned char *pages, size_t count, size_t size, int in_front) {
    return in_front ? pages : pages + count * PAGE - size;
}

static void say(const char *format, ...) {
    char text[1024];
    va_list values;
    va_start(values, format);
    int length = vsnprintf(text, sizeof text, format, values);
    va_end(values);
    if (length > 0) {
        ssize_t ignored = write(report_to, text, length < (int)sizeof text ? length : (int)sizeof text - 1);
        (void)ignored;
    }
}

static void say_where(const Slot *slot) {
    for (int i = 0; i < FRAMES && slot->files[i]; i++) say("      made in %s, line %d\n", slot->files[i], slot->lines[i]);
}

/* The lines of Python that make an array. Names of files are held for ever: there are few. */
static void note_lines(Slot *slot) {
    memset(slot->files, 0, sizeof slot->files);
    if (!PyGILState_Check()) return;
    void *frame = PyEval_GetFrame();
    if (frame) Py_IncRef(frame);
    for (int i = 0; frame && i < FRAMES; i++) {
        void *code = PyFrame_GetCode(frame), *file = PyObject_GetAttrString(code, "co_filename");
        slot->files[i] = file ? PyUnicode_AsUTF8(file) : NULL;
        slot->lines[i] = PyFrame_GetLineNumber(frame);
        Py_DecRef(code);
        void *back = PyFrame_GetBack(frame);
        Py_DecRef(frame);
        frame = back;
    }
    if (frame) Py_DecRef(frame);
}

static uint32_t taken_from_queue(size_t pages) {
    Queue *queue = &queues[pages];
    uint32_t kept = QUARANTINED_PAGES / pages < 4 ? 4 : QUARANTINED_PAGES / pages;
    if (queue->count <= kept) return 0;
    uint32_t found = queue->oldest;
    queue->oldest = slots[found].next;
    queue->count--;
    return found;
}

static uint32_t new_slot(size_t pages) {
    if (slot_count == MOST_SLOTS || (used_pages + pages + 1) * PAGE > REGION_BYTES) return 0;
    uint32_t made = slot_count++;
    slots[made].first = used_pages;
    slots[made].pages = pages;
    for (size_t i = 0; i <= pages; i++) slot_of_page[used_pages + i] = made;
    used_pages += pages + 1;
    return made;
}

static unsigned char *slot_pages(const Slot *slot) { return region + slot->first * PAGE; }

static unsigned char *take_slot(size_t pages, Slot **found) {
    uint32_t index = taken_from_queue(pages);
    if (!index) index = new_slot(pages);
    if (!index) return NULL;
    *found = &slots[index];
    if (mprotect(slot_pages(*found), pages * PAGE, PROT_READ | PROT_WRITE) == 0) return slot_pages(*found);
    Queue *queue = &queues[pages]; /* no more maps: the slot stays free */
    slots[index].is_live = 0;
    if (queue->count++) slots[queue->latest].next = index;
    else queue->oldest = index;
    queue->latest = index;
    return NULL;
}

static unsigned char *take_map(size_t pages, Slot **found) {
    Slot *entry = NULL;
    for (uint32_t i = 0; i < MOST_LARGE && !entry; i++)
        if (!large[i].first) entry = &large[i];
    if (!entry) return NULL;
    unsigned char *map = mmap(NULL, (pages + 2) * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) return NULL;
    if (mprotect(map + PAGE, pages * PAGE, PROT_READ | PROT_WRITE)) {
        munmap(map, (pages + 2) * PAGE);
        return NULL;
    }
    entry->first = (uint64_t)(uintptr_t)(map + PAGE);
    entry->pages = pages;
    *found = entry;
    return map + PAGE;
}

static void *guarded(size_t size, int is_zero) {
    size_t pages = pages_of(size);
    if (pages > UINT32_MAX) return NULL;
    Slot *slot = NULL, lines;
    note_lines(&lines);
    pthread_mutex_lock(&lock);
    unsigned char *start = live >= most_live ? NULL : pages <= LARGEST_SLOT_PAGES ? take_slot(pages, &slot) : take_map(pages, &slot);
    if (start) {
        memcpy(slot->files, lines.files, sizeof lines.files);
        memcpy(slot->lines, lines.lines, sizeof lines.lines);
        slot->size = size;
        slot->serial = serial++;
        slot->is_guarded_in_front = is_front;
        slot->is_live = 1;
        live++;
    }
    pthread_mutex_unlock(&lock);
    if (!start) return NULL;
    unsigned char *array = placed(start, pages, size, is_front);
    size_t unused = pages * PAGE - size;
    memset(is_front ? start + size : start, UNUSED, unused);
    if (!is_zero && fill && size <= FILLED_BYTES) memset(array, fill, size);
    return array;
}

/* The slot of an address in its pages or in the page behind; NULL if it is none of ours. */
static Slot *slot_at(const void *address) {
    uintptr_t place = (uintptr_t)address, start = (uintptr_t)region;
    if (place >= start && place < start + REGION_BYTES) {
        uint32_t index = slot_of_page[(place - start) / PAGE];
        return index ? &slots[index] : NULL;
    }
    for (uint32_t i = 0; i < MOST_LARGE; i++)
        if (large[i].first && place + PAGE >= large[i].first && place < large[i].first + ((uint64_t)large[i].pages + 1) * PAGE)
            return &large[i];
    return NULL;
}

static int is_large(const Slot *slot) { return slot >= large && slot < large + MOST_LARGE; }

static unsigned char *pages_start(const Slot *slot) {
    return is_large(slot) ? (unsigned char *)(uintptr_t)slot->first : slot_pages(slot);
}

static void check_unused(const Slot *slot) {
    unsigned char *start = pages_start(slot);
    unsigned char *array = placed(start, slot->pages, slot->size, slot->is_guarded_in_front);
    unsigned char *from = slot->is_guarded_in_front ? array + slot->size : start;
    size_t count = (size_t)slot->pages * PAGE - slot->size;
    for (size_t i = 0; i < count; i++) {
        if (from[i] == UNUSED) continue;
        if (slot->is_guarded_in_front) say("guard pages: byte %zu behind", i + 1);
        else say("guard pages: byte %zu before", count - i);
        say(" an array of %llu bytes was written while it lived\n", (unsigned long long)slot->size);
        say_where(slot);
        say("      during %s\n", context);
        abort();
    }
}

static void quarantine_map(Slot *slot) {
    slot->is_live = 0;
    slot->serial = large_frees++;
    for (uint32_t i = 0; i < MOST_LARGE; i++) {
        Slot *old = &large[i];
        if (old->first && !old->is_live && old->serial + QUARANTINED_MAPS < large_frees) {
            munmap((void *)(uintptr_t)(old->first - PAGE), ((size_t)old->pages + 2) * PAGE);
            old->first = 0;
        }
    }
}

static void quarantine_slot(Slot *slot) {
    Queue *queue = &queues[slot->pages];
    uint32_t index = slot - slots;
    slot->is_live = 0;
    if (queue->count++) slots[queue->latest].next = index;
    else queue->oldest = index;
    queue->latest = index;
}

static void guarded_free(void *unused, void *array, size_t size) {
    (void)unused;
    Slot *slot = array ? slot_at(array) : NULL;
    if (!slot) {
        system_memory.free(system_memory.context, array, size);
        return;
    }
    if (!slot->is_live || placed(pages_start(slot), slot->pages, slot->size, slot->is_guarded_in_front) != array) {
        say("guard pages: %p is freed, and is no array's memory (any more)\n      during %s\n", array, context);
        abort();
    }
    check_unused(slot);
    size_t bytes = (size_t)slot->pages * PAGE;
    /* one call takes the memory back and makes the pages inaccessible */
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    if (mmap(pages_start(slot), bytes, PROT_NONE, flags, -1, 0) == MAP_FAILED) {
        madvise(pages_start(slot), bytes, MADV_DONTNEED);
        mprotect(pages_start(slot), bytes, PROT_NONE);
    }
    pthread_mutex_lock(&lock);
    live--;
    if (is_large(slot)) quarantine_map(slot);
    else quarantine_slot(slot);
    pthread_mutex_unlock(&lock);
}

static void *guarded_malloc(void *unused, size_t size) {
    (void)unused;
    void *made = guarded(size, 0);
    if (made) return made;
    __atomic_add_fetch(&fallbacks, 1, __ATOMIC_RELAXED);
    return system_memory.malloc(system_memory.context, size);
}

static void *guarded_calloc(void *unused, size_t count, size_t each) {
    (void)unused;
    size_t size;
    if (__builtin_mul_overflow(count, each, &size)) return NULL;
    void *made = guarded(size, 1);
    if (made) return made;
    __atomic_add_fetch(&fallbacks, 1, __ATOMIC_RELAXED);
    return system_memory.calloc(system_memory.context, count, each);
}

static void *guarded_realloc(void *unused, void *array, size_t size) {
    if (!array) return guarded_malloc(unused, size);
    Slot *slot = slot_at(array);
    if (!slot) return system_memory.realloc(system_memory.context, array, size);
    void *moved = guarded_malloc(unused, size);
    if (!moved) return NULL;
    memcpy(moved, array, slot->size < size ? slot->size : size);
    guarded_free(unused, array, slot->size);
    return moved;
}

static void say_array(const Slot *slot, const unsigned char *place) {
    const unsigned char *array = placed(pages_start(slot), slot->pages, slot->size, slot->is_guarded_in_front);
    const char *state = slot->is_live ? "" : " that was freed";
    unsigned long long size = slot->size;
    if (place < array) say("  %llu bytes before an array of %llu bytes%s\n", (unsigned long long)(array - place), size, state);
    else if (place >= array + size) say("  byte %llu behind an array of %llu bytes%s\n", (unsigned long long)(place - array - size) + 1, size, state);
    else say("  byte %llu of an array of %llu bytes%s\n", (unsigned long long)(place - array), size, state);
    say_where(slot);
}

static const char *access_of(const void *machine) {
#if defined(__x86_64__)
    return ((const ucontext_t *)machine)->uc_mcontext.gregs[REG_ERR] & 2 ? "write" : "read";
#else
    (void)machine;
    return "access";
#endif
}

/* Names the arrays around the place of a fault, then leaves it to whoever handled it before (as faulthandler). */
static void on_fault(int number, siginfo_t *info, void *machine) {
    sigaction(SIGSEGV, &before_segv, NULL);
    sigaction(SIGBUS, &before_bus, NULL);
    const unsigned char *place = info->si_addr;
    say("\nguard pages: signal %d, %s at %p during %s\n", number, access_of(machine), (void *)place, context);
    Slot *slot = slot_at(place);
    if (slot) say_array(slot, place);
    Slot *next = slot && is_large(slot) ? NULL : slot_at(place + PAGE);
    if (next && next != slot) say_array(next, place);
    if (!slot && !next) say("  near no array\n");
}

/* Starts to guard up to `most` arrays at a time. `handler` is NumPy's default one. 0, or why not. */
int start(Handler *handler, uint64_t most, int in_front, int fill_byte, int descriptor) {
    region = mmap(NULL, REGION_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    slot_of_page = mmap(NULL, REGION_BYTES / PAGE * sizeof *slot_of_page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    slots = mmap(NULL, MOST_SLOTS * sizeof *slots, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    large = calloc(MOST_LARGE, sizeof *large);
    if (region == MAP_FAILED || (void *)slot_of_page == MAP_FAILED || (void *)slots == MAP_FAILED || !large) return errno;
    used_pages = 1;
    most_live = most;
    is_front = in_front;
    fill = fill_byte;
    report_to = descriptor;
    system_memory = handler->allocator;
    handler->allocator = (Allocator){NULL, guarded_malloc, guarded_calloc, guarded_realloc, guarded_free};
    return 0;
}

/* Names arrays when something faults; to be called after others have set their handlers. */
int watch_faults(void) {
    static unsigned char stack[1 << 16];
    stack_t spare = {.ss_sp = stack, .ss_size = sizeof stack}, current;
    if (sigaltstack(NULL, &current) == 0 && current.ss_flags & SS_DISABLE) sigaltstack(&spare, NULL);
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
    sigemptyset(&action.sa_mask);
    struct sigaction found;
    if (sigaction(SIGSEGV, NULL, &found) == 0 && found.sa_sigaction == on_fault) return 0;
    return sigaction(SIGSEGV, &action, &before_segv) || sigaction(SIGBUS, &action, &before_bus) ? errno : 0;
}

void set_side(int in_front) { is_front = in_front; }
void set_context(const char *text) { snprintf(context, sizeof context, "%s", text); }
uint64_t fallback_count(void) { return fallbacks; }
uint64_t array_count(void) { return serial + fallbacks; }
uint64_t live_count(void) { return live; }
