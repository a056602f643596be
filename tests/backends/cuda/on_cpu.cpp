// Runs CUDA C on a CPU, one thread at a time.
//
// Each thread of a block is a fiber. It runs until it reaches a barrier, __syncthreads or a shuffle, and continues when
// all threads that share the barrier have reached it. Blocks run one after the other. `forward` is the order in which
// the threads of a block run: a missing barrier shows in one order or the other. Kernels without barriers need no
// fibers.
#include "on_cpu.h"

#include <setjmp.h>
#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

Index threadIdx, blockIdx, blockDim, gridDim;
const char *stack_begin, *stack_end;
int current;
long epoch;

enum Waiting { FOR_NOTHING, FOR_BLOCK, FOR_WARP, FOR_EVER };

const size_t STACK = 1 << 16;

struct Fiber {
    ucontext_t beginning;  // swapcontext enters a fiber first; later _longjmp, which is faster, returns to it
    jmp_buf place;
    bool begun = false;
    std::vector<char> stack = std::vector<char>(STACK);
    Waiting waiting;
    int shuffles;
    Index index;
};

static std::vector<Fiber> fibers;
static std::vector<unsigned> exchanged[2];  // the values that threads pass in shuffles
static ucontext_t before;
static jmp_buf scheduler;
static bool with_fibers;
static std::vector<std::pair<char*, long>> shared;  // begin, size
static void (*kernel)(void*);
static void* kernel_arguments;

static void wait(Waiting waiting) {
    if (!with_fibers) fail("a barrier in a kernel in which has_barriers has found none");
    int self = current;
    fibers[self].waiting = waiting;
    if (!_setjmp(fibers[self].place)) _longjmp(scheduler, 1);
}

// Run a fiber until it waits.
static void resume(Fiber& fiber) {
    threadIdx = fiber.index;
    stack_begin = fiber.stack.data();
    stack_end = stack_begin + STACK;
    if (_setjmp(scheduler)) return;
    if (fiber.begun) _longjmp(fiber.place, 1);
    fiber.begun = true;
    swapcontext(&before, &fiber.beginning);
}

static void run_fiber() {
    for (;;) {
        kernel(kernel_arguments);
        wait(FOR_EVER);  // that is, until a thread of the next block is needed
    }
}

// Release the fibers from `begin` to `end` if all that still run wait for the same barrier. Returns whether it did.
static bool release(int begin, int end, Waiting waiting) {
    bool some = false, gone = false;
    for (int i = begin; i < end; i++) {
        if (fibers[i].waiting != FOR_EVER && fibers[i].waiting != waiting) return false;
        some |= fibers[i].waiting == waiting;
        gone |= fibers[i].waiting == FOR_EVER;
    }
    if (some && gone && waiting == FOR_WARP) fail("a shuffle reads a lane that has returned");
    for (int i = begin; i < end; i++)
        if (fibers[i].waiting == waiting) fibers[i].waiting = FOR_NOTHING;
    return some;
}

static Index index_of(int i) { return {i % blockDim.x, i / blockDim.x % blockDim.y, i / (blockDim.x * blockDim.y)}; }

void share(void* variable, size_t size) {
    long all = size;
    for (auto [begin, bytes] : shared) {
        if (begin == variable) return;
        all += bytes;
    }
    if (all > MOST_SHARED_BYTES) fail(("a block has " + std::to_string(all) + " bytes of shared memory").c_str());
    shared.emplace_back((char*)variable, size);
    memset(variable, 0xff, size);
}

bool find_shared(const void* address, long* size, long* offset) {
    for (auto [begin, bytes] : shared) {
        *size = bytes;
        *offset = (char*)address - begin;
        if (*offset >= 0 && *offset < 1 << 16) return true;
    }
    return false;
}

static void run_without_barriers(int n, bool forward) {
    stack_end = (const char*)__builtin_frame_address(0) + STACK;
    stack_begin = stack_end - 2 * STACK;
    for (int j = 0; j < n; j++) {
        current = forward ? j : n - 1 - j;
        threadIdx = index_of(current);
        kernel(kernel_arguments);
    }
}

static void run_block(int n, bool forward) {
    for (int i = 0; i < n; i++) {
        Fiber& fiber = fibers[i];
        fiber.waiting = FOR_NOTHING;
        fiber.shuffles = 0;
        fiber.index = index_of(i);
        if (fiber.begun) continue;
        getcontext(&fiber.beginning);
        fiber.beginning.uc_stack.ss_sp = fiber.stack.data();
        fiber.beginning.uc_stack.ss_size = STACK;
        makecontext(&fiber.beginning, run_fiber, 0);
    }
    for (;;) {
        bool ran = false, over = true;
        for (int j = 0; j < n; j++) {
            current = forward ? j : n - 1 - j;
            over &= fibers[current].waiting == FOR_EVER;
            if (fibers[current].waiting != FOR_NOTHING) continue;
            ran = true, over = false;
            resume(fibers[current]);
        }
        if (over) return;
        if (ran) continue;
        bool released = false;
        for (int warp = 0; warp < n; warp += 32) released |= release(warp, min(n, warp + 32), FOR_WARP);
        if (!released && !release(0, n, FOR_BLOCK)) fail("threads wait for each other at different barriers");
        epoch += !released;
    }
}

void launch(const int* grid, const int* block, bool forward, bool barriers, void (*thread)(void*), void* arguments) {
    gridDim = {grid[0], grid[1], grid[2]};
    blockDim = {block[0], block[1], block[2]};
    int n = block[0] * block[1] * block[2];
    if (n > MOST_THREADS || grid[1] > MOST_BLOCKS || grid[2] > MOST_BLOCKS) fail("more threads or blocks than a GPU allows");
    static bool ended = true;  // false if `fail` has left the threads somewhere
    if (!ended)
        for (Fiber& fiber : fibers) fiber.begun = false;
    ended = false;
    with_fibers = barriers;
    kernel = thread;
    kernel_arguments = arguments;
    if (fibers.size() < (size_t)n) {
        fibers.resize(n);
        for (auto& values : exchanged) values.resize(n);
    }
    for (blockIdx.z = 0; blockIdx.z < grid[2]; blockIdx.z++)
        for (blockIdx.y = 0; blockIdx.y < grid[1]; blockIdx.y++)
            for (blockIdx.x = 0; blockIdx.x < grid[0]; blockIdx.x++) {
                shared.clear();
                epoch++;
                (barriers ? run_block : run_without_barriers)(n, forward);
            }
    ended = true;
}

void __syncthreads() { wait(FOR_BLOCK); }
void __syncwarp() { wait(FOR_WARP); }

// What lane `lane` of this warp passes. A thread may be one shuffle ahead of another, but not two.
static unsigned exchange(unsigned value, int lane) {
    int self = current;
    std::vector<unsigned>& values = exchanged[fibers[self].shuffles++ % 2];
    values[self] = value;
    wait(FOR_WARP);
    return values[self / 32 * 32 + lane];
}

float __shfl_xor_sync(unsigned, float value, int far) {
    unsigned bits;
    memcpy(&bits, &value, 4);
    bits = exchange(bits, current % 32 ^ far);
    memcpy(&value, &bits, 4);
    return value;
}

unsigned __shfl_sync(unsigned, unsigned value, int lane) { return exchange(value, lane); }
