/* Runs the code of one program: weights and inputs come from the disk, outputs go back to it.
   layout.h says where everything lies. */
#include "layout.h"

typedef unsigned char byte;
typedef unsigned long size;

static inline void out8(unsigned short port, byte value) {
    __asm__ volatile("outb %0, %1" ::"a"(value), "Nd"(port));
}
static inline byte in8(unsigned short port) {
    byte value;
    __asm__ volatile("inb %1, %0" : "=a"(value) : "Nd"(port));
    return value;
}
static void say(const char *text) {
    while (*text) out8(0xe9, *text++);
}

/* What LLVM calls. */
void *memcpy(void *to, const void *from, size n) {
    void *start = to;
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n)::"memory");
    return start;
}
void *memset(void *to, int value, size n) {
    void *start = to;
    __asm__ volatile("rep stosb" : "+D"(to), "+c"(n) : "a"(value) : "memory");
    return start;
}
void *memmove(void *to, const void *from, size n) {
    byte *a = to;
    const byte *b = from;
    if (a < b) return memcpy(to, from, n);
    while (n--) a[n] = b[n];
    return to;
}

/* One sector of the first disk, by programmed transfer (ATA, 28-bit addresses). */
static void ask(size sector, byte command) {
    while (in8(0x1f7) & 0x80) {}
    out8(0x1f6, 0xe0 | (sector >> 24 & 15));
    out8(0x1f2, 1);
    out8(0x1f3, sector);
    out8(0x1f4, sector >> 8);
    out8(0x1f5, sector >> 16);
    out8(0x1f7, command);
    while ((in8(0x1f7) & 0x88) != 8) {}
}
static void read_disk(byte *to, size sector, size bytes) {
    for (size n = 0; n < bytes; n += 512, sector++) {
        size count = 256;
        void *place = to + n;
        ask(sector, 0x20);
        __asm__ volatile("rep insw" : "+D"(place), "+c"(count) : "d"(0x1f0) : "memory");
    }
}
static void write_disk(const byte *from, size sector, size bytes) {
    for (size n = 0; n < bytes; n += 512, sector++) {
        const void *place = from + n;
        ask(sector, 0x30);
        for (int i = 0; i < 256; i++) {
            unsigned short word = ((const unsigned short *)place)[i];
            __asm__ volatile("outw %0, %1" ::"a"(word), "Nd"((unsigned short)0x1f0));
        }
        while (in8(0x1f7) & 0x80) {}
    }
}

static const size lengths[] = LENGTHS;
static const size starts[] = STARTS;
typedef void segment(void *);
extern segment SEGMENTS;
static segment *const segments[] = {SEGMENT_LIST};

__attribute__((section(".first"))) void begin(void) {
    byte *at = (byte *)0x200000;
    void *weights[sizeof starts / sizeof *starts];
    void *context[ARRAYS + INPUTS + OUTPUTS + 1];
    memset(context, 0, sizeof context);
    context[ARENA] = at;
    memset(at, 0, ARENA_BYTES);
    at += ARENA_BYTES + 4096;
    at = (byte *)((size)at & ~63UL);
    at = (byte *)(((size)at + 4095) & ~4095UL);
    for (unsigned i = 0; i < sizeof starts / sizeof *starts; i++) weights[i] = at + starts[i];
    context[WEIGHTS] = weights;
    read_disk(at, DATA_SECTOR, WEIGHT_BYTES);
    at += WEIGHT_BYTES + 4096;
    size sector = DATA_SECTOR + (WEIGHT_BYTES + 511) / 512;
    for (int i = 0; i < INPUTS + OUTPUTS; i++) {
        at = (byte *)(((size)at + 63) & ~63UL);
        context[ARRAYS + i] = at;
        if (i < INPUTS) read_disk(at, sector, lengths[i]);
        else memset(at, 0xaa, lengths[i]);
        sector += (lengths[i] + 511) / 512;
        at += lengths[i] + 1024;
    }
    say("running\n");
    for (unsigned i = 0; i < sizeof segments / sizeof *segments; i++) segments[i](context);
    for (int i = OUTPUTS; i-- > 0;) {
        size bytes = lengths[INPUTS + i];
        sector -= (bytes + 511) / 512;
        write_disk(context[ARRAYS + INPUTS + i], sector, bytes);
    }
    say("finished\n");
    for (const char *word = "Shutdown"; *word; word++) out8(0x8900, *word);
}
