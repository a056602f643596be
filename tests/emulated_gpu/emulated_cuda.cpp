// A stand-in for an NVIDIA GPU: the functions of the CUDA runtime, the driver, cuBLAS and NCCL that CuPy calls for us.
//
// Device memory is host memory, and kernels are compiled for the CPU. Launches, products and copies are queued in their
// stream, as on a GPU, and run when the host waits for them. Whatever touches device memory says so to `touch`: kernels
// are compiled with -fsanitize=kernel-address, which calls __asan_load or __asan_store before each access. So we see
//   - an access outside of an array, to freed memory, or to memory of the host,
//   - a read of numbers that nobody has written,
//   - two operations on the same bytes in streams of which neither waits for the other (by vector clocks).
// Calls with wrong arguments return the code that NVIDIA's documentation names. Each problem is also a sentence.
#include <driver_types.h>
#include <dlfcn.h>
#include <link.h>
#include <setjmp.h>

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "on_cpu.h"
#undef __shared__

using Status = int;
using Bytes = std::vector<char>;
using Clock = std::vector<long>;  // [stream] how many of its operations have ended for certain

static std::recursive_mutex mutex;
#define ALONE std::lock_guard<std::recursive_mutex> alone(mutex)
#define ALONE_AND_WELL ALONE; if (failure) return failure  // after a kernel's error, CUDA answers each call with it

extern "C" {
struct Counts { long launches, products, copies, synchronisations, polls; } emulated_counts;
}

static std::string problems, last_problem;  // a line each
static Status failure;  // an error of a kernel, until `emulated_problems` ends it
static std::string why_it_failed;

template <typename... Part>
static std::string sentence(const Part&... parts) {
    std::ostringstream text;
    (text << ... << parts);
    return text.str();
}

template <typename... Part>
static Status problem(Status code, const Part&... parts) {
    last_problem = sentence(parts...);
    problems += last_problem + "\n";
    return code;
}

// Streams: what is queued, and what is known to come first ------------------------------------------------------------

struct Place { int stream; long position; };  // the operation with this number in the queue of a stream, from 1

struct Operation {
    unsigned id;
    std::string name;
    std::vector<Place> after;
    Clock clock;  // what has ended before this operation begins
    std::function<void()> run;
};

struct Stream {
    bool blocking;
    long queued = 0, done = 0;
    std::deque<Operation> queue;
    Clock clock;
};

struct Event { Place place{-1, 0}; Clock clock; };
struct Past { Place place; const std::string* name; };

static std::deque<Stream> streams = {{true}};  // the first is the default stream, which blocks others
static std::deque<Past> past(1);  // operation id -> where it was queued; 0 is no operation
static std::set<std::string> names;
static Clock known_to_host;
static Operation* running;
static const std::string FREE = "cudaFreeAsync";
static jmp_buf out_of_operation;

static void merge(Clock& clock, const Clock& other) {
    if (clock.size() < other.size()) clock.resize(other.size());
    for (size_t i = 0; i < other.size(); i++) clock[i] = std::max(clock[i], other[i]);
}

static bool has_ended(const Clock& clock, Place place) {
    return (size_t)place.stream < clock.size() && clock[place.stream] >= place.position;
}

const long FIRST_HANDLE = 0x1000;

static int stream_of(void* handle) {
    long number = handle ? (long)handle - FIRST_HANDLE : 0;
    return number >= 0 && number < (long)streams.size() ? number : -1;
}

static Place enqueue(int number, std::string name, std::function<void()> run, std::vector<Place> after = {}) {
    Stream& stream = streams[number];
    Operation operation{(unsigned)past.size(), name, std::move(after), {}, std::move(run)};
    merge(stream.clock, known_to_host);
    for (int other = 0; other < (int)streams.size(); other++)
        if (other != number && stream.blocking && streams[other].blocking && (number == 0 || other == 0)) {
            operation.after.push_back({other, streams[other].queued});
            merge(stream.clock, streams[other].clock);
        }
    Place place{number, ++stream.queued};
    stream.clock.resize(std::max(stream.clock.size(), streams.size()));
    operation.clock = stream.clock;
    stream.clock[number] = place.position;
    past.push_back({place, &*names.insert(name).first});
    stream.queue.push_back(std::move(operation));
    return place;
}

static Status enqueue_in(void* stream, const std::string& name, std::function<void()> run) {
    int number = stream_of(stream);
    if (number < 0) return problem(cudaErrorInvalidResourceHandle, name, ": no such stream");
    enqueue(number, name, std::move(run));
    return cudaSuccess;
}

// Run the operations of a stream up to this one, and those that they wait for.
static void advance(Place to) {
    Stream& stream = streams[to.stream];
    while (stream.done < to.position) {
        Operation operation = std::move(stream.queue.front());
        stream.queue.pop_front();
        stream.done++;
        for (Place place : operation.after) advance(place);
        running = &operation;
        if ((!failure || operation.name == FREE) && !_setjmp(out_of_operation)) operation.run();
        running = nullptr;
    }
}

// The host waits for this operation, and so knows what has ended.
static Status wait_for(Place place, const Clock& clock) {
    emulated_counts.synchronisations += streams[place.stream].done < place.position;
    advance(place);
    merge(known_to_host, clock);
    return failure;
}

static Status wait_for_stream(int number) {
    return wait_for({number, streams[number].queued}, streams[number].clock);
}

// Memory --------------------------------------------------------------------------------------------------------------

struct Allocation {
    char* begin;
    size_t size;
    bool on_device, freed = false;
    std::vector<unsigned> written_by;  // for each byte, the operation that did so last
    std::map<int, std::vector<unsigned>> read_by;  // the same for each stream
};

static std::map<char*, Allocation> allocations;
static std::deque<char*> to_reuse;  // freed; kept for a while, so that late accesses are noticed
static Allocation* recent[1 << 10];  // by address: allocations that were used last

const size_t GAP = 4096;  // between allocations
const size_t KEPT = 2000;

static Allocation* allocation_of(const void* address) {
    char* p = (char*)address;
    Allocation*& found = recent[(size_t)p / 512 % (sizeof recent / sizeof *recent)];
    if (found && p >= found->begin && p < found->begin + found->size) return found;
    auto next = allocations.upper_bound(p);
    if (next == allocations.begin()) return nullptr;
    Allocation& last = std::prev(next)->second;
    return p < last.begin + last.size + GAP ? found = &last : nullptr;
}

static Status allocate(void** made, size_t size, bool on_device) {
    char* begin = (char*)aligned_alloc(512, (size + GAP + 511) / 512 * 512);
    if (!begin) return cudaErrorMemoryAllocation;
    memset(begin, on_device ? 0xff : 0, size);  // numbers that nobody has written are NaN
    Allocation& allocation = allocations[begin] = {begin, size, on_device};
    if (on_device) allocation.written_by.resize(size);
    *made = begin;
    return cudaSuccess;
}

static void give_back(Allocation& allocation) {
    allocation.freed = true;
    to_reuse.push_back(allocation.begin);
    if (to_reuse.size() < KEPT) return;
    free(to_reuse.front());
    allocations.erase(to_reuse.front());
    to_reuse.pop_front();
    std::fill(std::begin(recent), std::end(recent), nullptr);
}

// The running operation has gone wrong. A GPU would not notice.
static void report(const std::string& text) {
    static unsigned reported;
    if (reported != running->id) problem(0, running->name, ": ", text);
    reported = running->id;
}

// The running operation cannot go on.
[[noreturn]] static void abandon(Status code, const std::string& text) {
    failure = problem(code, running->name, ": ", text);
    why_it_failed = last_problem;
    _longjmp(out_of_operation, 1);
}

void fail(const char* why) { abandon(cudaErrorLaunchFailure, why); }

static bool comes_before(unsigned id) {
    Place place = past[id].place;
    return id == 0 || place.stream == past[running->id].place.stream || has_ended(running->clock, place);
}

static std::string described(const Allocation* allocation, const void* address) {
    if (!allocation) return "memory that is not the GPU's";
    const char* kind = allocation->freed ? "freed memory: " : !allocation->on_device ? "memory of the host: " : "";
    long offset = (char*)address - allocation->begin;
    return sentence(kind, "an array of ", allocation->size, " bytes, at byte ", offset);
}

// The array in which the running operation reads or writes these bytes. Ends the operation if they are not all there.
static Allocation* array_of(const void* address, size_t n, bool writes) {
    Allocation* a = allocation_of(address);
    if (a && !a->freed && a->on_device && (char*)address + n <= a->begin + a->size) return a;
    const char* what = writes ? "illegal write of " : "illegal read of ";
    abandon(cudaErrorIllegalAddress, what + described(a, address));
}

// The running operation reads or writes these bytes.
static void touch(const void* address, size_t n, bool writes) {
    Allocation* a = array_of(address, n, writes);
    size_t offset = (char*)address - a->begin;
    unsigned self = running->id, known = self;  // an operation that comes before this one
    int stream = past[self].place.stream;
    auto check = [&](const std::vector<unsigned>& others) {
        for (size_t i = offset; i < offset + n; i++)
            if (unsigned other = others[i]; other != known && other != self) {
                if (!comes_before(other))
                    report(sentence("race with ", *past[other].name, " in another stream, neither waits for the other: ",
                                    described(a, a->begin + i)));
                known = other;
            }
    };
    check(a->written_by);
    if (writes) {
        for (auto& [other, read_by] : a->read_by)
            if (other != stream) check(read_by);
        std::fill_n(&a->written_by[offset], n, self);
        return;
    }
    std::vector<unsigned>& read_by = a->read_by[stream];
    read_by.resize(a->size);
    std::fill_n(&read_by[offset], n, self);
    for (size_t i = offset; i < offset + n; i++)
        if (!a->written_by[i]) report("reads what nobody has written: " + described(a, a->begin + i));
}

// Kernels -------------------------------------------------------------------------------------------------------------

static std::map<const char*, const char*> constants;  // of the kernels' libraries

struct Access { long epoch; int warp; };  // warp: MANY for several
const int MANY = -1;

// Two warps use this byte of a shared variable without a barrier between them, and one of them writes.
static bool is_race(const char* byte, bool writes) {
    static std::unordered_map<const char*, Access> last_write, last_read;
    int warp = current / 32;
    auto by_others = [=](Access access) { return access.epoch == epoch && access.warp != warp; };
    bool race = by_others(last_write[byte]) || (writes && by_others(last_read[byte]));
    Access& last = (writes ? last_write : last_read)[byte];
    last = {epoch, by_others(last) ? MANY : warp};
    return race;
}

static void touched_by_kernel(const void* address, size_t n, bool writes) {
    const char* p = (const char*)address;
    if (p >= stack_begin && p < stack_end) return;
    if (long size, offset; find_shared(p, &size, &offset)) {
        if (offset + (long)n <= size) {
            if (is_race(p, writes))
                report(sentence("warps race for a shared variable of ", size, " bytes, at byte ", offset));
            return;
        }
        abandon(cudaErrorIllegalAddress, sentence(writes ? "illegal write of" : "illegal read of", " a shared variable of ",
                                                  size, " bytes, at byte ", offset));
    }
    if (!writes && !allocation_of(p)) {
        auto next = constants.upper_bound(p);
        if (next != constants.begin() && p < std::prev(next)->second) return;
    }
    touch(p, n, writes);
}

extern "C" {
#define CHECKS(n)                                                                          \
    void __asan_load##n##_noabort(void* address) { touched_by_kernel(address, n, false); } \
    void __asan_store##n##_noabort(void* address) { touched_by_kernel(address, n, true); }
CHECKS(1) CHECKS(2) CHECKS(4) CHECKS(8) CHECKS(16)
void __asan_loadN_noabort(void* address, size_t n) { touched_by_kernel(address, n, false); }
void __asan_storeN_noabort(void* address, size_t n) { touched_by_kernel(address, n, true); }
void __asan_handle_no_return() {}

// The compiled code that CuPy passes is the path of a library.
Status cuModuleLoadData(void** module, const char* path) {
    ALONE_AND_WELL;
    *module = dlopen(path, RTLD_NOW);
    if (!*module) return problem(cudaErrorInvalidKernelImage, dlerror());
    link_map* map;
    dlinfo(*module, RTLD_DI_LINKMAP, &map);
    dl_iterate_phdr([](dl_phdr_info* info, size_t, void* base) {
        for (int i = 0; i < info->dlpi_phnum; i++) {
            const ElfW(Phdr)& segment = info->dlpi_phdr[i];
            const char* begin = (const char*)info->dlpi_addr + segment.p_vaddr;
            if (info->dlpi_addr == (ElfW(Addr))base && segment.p_type == PT_LOAD && !(segment.p_flags & PF_W))
                constants[begin] = begin + segment.p_memsz;
        }
        return 0;
    }, (void*)map->l_addr);
    return cudaSuccess;
}

Status cuModuleGetFunction(void** kernel, void* module, const char* name) {
    *kernel = dlsym(module, (std::string("entry_") + name).c_str());
    return *kernel ? cudaSuccess : problem(cudaErrorSymbolNotFound, "no kernel ", name);
}

Status cuModuleUnload(void*) { return cudaSuccess; }

Status cuLaunchKernel(Kernel* kernel, unsigned x, unsigned y, unsigned z, unsigned threads_x, unsigned threads_y,
                      unsigned threads_z, unsigned shared_bytes, void* stream, void** arguments, void**) {
    ALONE_AND_WELL;
    long threads = (long)threads_x * threads_y * threads_z;
    std::string name = kernel->name;
    if (threads == 0 || threads > MOST_THREADS || threads_z > 64)
        return problem(cudaErrorInvalidValue, name, ": ", threads, " threads in a block");
    if (x == 0 || y == 0 || z == 0 || x > 2147483647u || y > MOST_BLOCKS || z > MOST_BLOCKS)
        return problem(cudaErrorInvalidValue, name, ": a grid of ", x, " x ", y, " x ", z, " blocks");
    if (shared_bytes > MOST_SHARED_BYTES)
        return problem(cudaErrorInvalidValue, name, ": ", shared_bytes, " bytes of shared memory");
    auto values = std::make_shared<std::vector<Bytes>>();
    for (int i = 0; i < kernel->n_arguments; i++)
        values->emplace_back((char*)arguments[i], (char*)arguments[i] + kernel->sizes[i]);
    emulated_counts.launches++;
    return enqueue_in(stream, name, [=] {
        int grid[] = {(int)x, (int)y, (int)z}, block[] = {(int)threads_x, (int)threads_y, (int)threads_z};
        std::vector<void*> pointers;
        for (Bytes& value : *values) pointers.push_back(value.data());
        launch(grid, block, running->id % 2, kernel->has_barriers, kernel->thread, pointers.data());
    });
}
}

// The driver ----------------------------------------------------------------------------------------------------------

extern "C" {
static void* const CONTEXT = (void*)1;

Status cuInit(unsigned) { return cudaSuccess; }
Status cuCtxGetCurrent(void** context) { return *context = CONTEXT, cudaSuccess; }
Status cuCtxSetCurrent(void*) { return cudaSuccess; }
Status cuCtxGetDevice(int* device) { return *device = 0, cudaSuccess; }
Status cuStreamGetCtx(void*, void** context) { return *context = CONTEXT, cudaSuccess; }

const char* cudaGetErrorName(Status code) {
#define NAME(name) case cudaError##name: return "cudaError" #name;
    switch (code) {
        NAME(InvalidValue) NAME(MemoryAllocation) NAME(InvalidResourceHandle) NAME(NotReady)
        NAME(IllegalAddress) NAME(LaunchFailure) NAME(InvalidKernelImage) NAME(SymbolNotFound)
        default: return "cudaErrorUnknown";
    }
}

const char* cudaGetErrorString(Status) { return (failure ? why_it_failed : last_problem).c_str(); }
Status cuGetErrorName(Status code, const char** text) { return *text = cudaGetErrorName(code), cudaSuccess; }
Status cuGetErrorString(Status code, const char** text) { return *text = cudaGetErrorString(code), cudaSuccess; }

// The device ----------------------------------------------------------------------------------------------------------

Status cudaGetDeviceCount(int* n) { return *n = 1, cudaSuccess; }
Status cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
Status cudaSetDevice(int device) { return device ? cudaErrorInvalidDevice : cudaSuccess; }
Status cudaRuntimeGetVersion(int* version) { return *version = 13000, cudaSuccess; }
Status cudaDriverGetVersion(int* version) { return *version = 13000, cudaSuccess; }
Status cudaMemGetInfo(size_t* free, size_t* all) { return *free = 64l << 30, *all = 80l << 30, failure; }
Status cudaDeviceGetPCIBusId(char* id, int n, int) { return snprintf(id, n, "0000:01:00.0"), cudaSuccess; }

Status cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
    memset(properties, 0, sizeof *properties);
    strcpy(properties->name, "emulated GPU");
    properties->totalGlobalMem = 80l << 30;
    properties->major = 9;
    properties->multiProcessorCount = 132;
    properties->warpSize = 32;
    properties->maxThreadsPerBlock = MOST_THREADS;
    return cudaSuccess;
}

Status cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
    switch (attribute) {
        case cudaDevAttrMaxThreadsPerBlock: *value = MOST_THREADS; break;
        case cudaDevAttrMaxSharedMemoryPerBlock: *value = MOST_SHARED_BYTES; break;
        case cudaDevAttrWarpSize: *value = 32; break;
        case cudaDevAttrMultiProcessorCount: *value = 132; break;
        case cudaDevAttrMaxThreadsPerMultiProcessor: *value = 2048; break;
        case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
        case cudaDevAttrMemoryPoolsSupported: *value = 1; break;
        default: *value = 0;
    }
    return cudaSuccess;
}

// Memory --------------------------------------------------------------------------------------------------------------

Status cudaMallocAsync(void** made, size_t size, void*) { ALONE_AND_WELL; return allocate(made, size, true); }

static Status allocate_now(void** made, size_t size, bool on_device) {
    ALONE_AND_WELL;
    return allocate(made, size, on_device);
}

Status cudaMalloc(void** made, size_t size) { return allocate_now(made, size, true); }
Status cudaHostAlloc(void** made, size_t size, unsigned) { return allocate_now(made, size, false); }
Status cudaMallocHost(void** made, size_t size) { return allocate_now(made, size, false); }

Status cudaFreeHost(void* address) {
    ALONE;
    Allocation* a = allocation_of(address);
    if (!a || a->on_device || a->begin != address)
        return problem(cudaErrorInvalidValue, "cudaFreeHost of ", described(a, address));
    for (size_t i = 0; i < streams.size(); i++) advance({(int)i, streams[i].queued});
    give_back(*a);
    return cudaSuccess;
}

// Freed where the stream is then.
Status cudaFreeAsync(void* address, void* stream) {
    ALONE;
    Allocation* a = allocation_of(address);
    if (!a || !a->on_device || a->freed || a->begin != address)
        return problem(cudaErrorInvalidValue, "cudaFree of ", described(a, address));
    return enqueue_in(stream, FREE, [=] {
        if (a->size) touch(a->begin, a->size, true);
        a->written_by = {};
        a->read_by = {};
        give_back(*a);
    });
}

Status cudaDeviceSynchronize();

Status cudaFree(void* address) {
    ALONE;
    if (!address) return cudaSuccess;
    Status code = cudaFreeAsync(address, nullptr);
    return code ? code : cudaDeviceSynchronize();
}

Status cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
    ALONE;
    Allocation* a = allocation_of(address);
    memset(attributes, 0, sizeof *attributes);
    attributes->type = !a ? cudaMemoryTypeUnregistered : a->on_device ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
    attributes->devicePointer = attributes->hostPointer = (void*)address;
    return cudaSuccess;
}

// What is wrong with these bytes as memory of the device, or of the host; "" if nothing.
static std::string objection(const void* address, size_t n, bool on_device) {
    Allocation* a = allocation_of(address);
    if (on_device ? !a || !a->on_device || a->freed : a && a->on_device) return described(a, address);
    return a && (char*)address + n > a->begin + a->size ? described(a, address) + ", is too small" : "";
}

static bool is_on_device(const void* address) {
    Allocation* a = allocation_of(address);
    return a && a->on_device;
}

Status cudaMemcpyAsync(void* to, const void* from, size_t n, cudaMemcpyKind kind, void* stream) {
    ALONE_AND_WELL;
    int number = stream_of(stream);
    if (number < 0) return problem(cudaErrorInvalidResourceHandle, "copy: no such stream");
    bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (kind == cudaMemcpyDefault) to_device = is_on_device(to), from_device = is_on_device(from);
    std::string wrong = n ? objection(from, n, from_device) : "", wrong_to = n ? objection(to, n, to_device) : "";
    if (wrong.size()) return problem(cudaErrorInvalidValue, "copy from ", wrong);
    if (wrong_to.size()) return problem(cudaErrorInvalidValue, "copy to ", wrong_to);
    emulated_counts.copies++;
    bool staged = !from_device && !allocation_of(from);  // not pinned: read before this function returns
    auto stage = std::make_shared<Bytes>((char*)from, (char*)from + (staged ? n : 0));
    if (!to_device) memset(to, 0xff, n);  // until the copy is made, the host must not read this
    Status code = enqueue_in(stream, "copy", [=] {
        if (from_device) touch(from, n, false);
        if (to_device) touch(to, n, true);
        memmove(to, staged ? stage->data() : from, n);
    });
    bool waits = !to_device && !allocation_of(to);  // for memory that is not pinned
    return code || !waits ? code : wait_for_stream(number);
}

Status cudaMemcpy(void* to, const void* from, size_t n, cudaMemcpyKind kind) {
    ALONE_AND_WELL;
    Status code = cudaMemcpyAsync(to, from, n, kind, nullptr);
    return code ? code : wait_for_stream(0);
}

Status cudaMemsetAsync(void* to, int value, size_t n, void* stream) {
    ALONE_AND_WELL;
    std::string wrong = n ? objection(to, n, true) : "";
    if (wrong.size()) return problem(cudaErrorInvalidValue, "cudaMemset of ", wrong);
    return enqueue_in(stream, "cudaMemset", [=] {
        touch(to, n, true);
        memset(to, value, n);
    });
}

Status cudaMemset(void* to, int value, size_t n) { return cudaMemsetAsync(to, value, n, nullptr); }

// Streams and events --------------------------------------------------------------------------------------------------

Status cudaStreamCreateWithPriority(void** stream, unsigned flags, int) {
    ALONE_AND_WELL;
    streams.push_back({flags != cudaStreamNonBlocking});
    *stream = (void*)(FIRST_HANDLE + streams.size() - 1);
    return cudaSuccess;
}

Status cudaStreamDestroy(void*) { return cudaSuccess; }

Status cudaStreamSynchronize(void* stream) {
    ALONE_AND_WELL;
    int number = stream_of(stream);
    return number < 0 ? problem(cudaErrorInvalidResourceHandle, "no such stream") : wait_for_stream(number);
}

Status cudaDeviceSynchronize() {
    ALONE_AND_WELL;
    for (size_t i = 0; i < streams.size(); i++) wait_for_stream(i);
    return failure;
}

Status cudaEventCreateWithFlags(Event** event, unsigned) { return *event = new Event, cudaSuccess; }
Status cudaEventCreate(Event** event) { return *event = new Event, cudaSuccess; }
Status cudaEventDestroy(Event* event) { return delete event, cudaSuccess; }

Status cudaEventRecord(Event* event, void* stream) {
    ALONE_AND_WELL;
    int number = stream_of(stream);
    if (number < 0) return problem(cudaErrorInvalidResourceHandle, "cudaEventRecord: no such stream");
    *event = {enqueue(number, "event", [] {}), streams[number].clock};
    return cudaSuccess;
}

Status cudaStreamWaitEvent(void* stream, Event* event, unsigned) {
    ALONE_AND_WELL;
    int number = stream_of(stream);
    if (number < 0) return problem(cudaErrorInvalidResourceHandle, "cudaStreamWaitEvent: no such stream");
    if (event->place.stream < 0) return cudaSuccess;  // it was never recorded
    merge(streams[number].clock, event->clock);
    enqueue(number, "event", [] {}, {event->place});
    return cudaSuccess;
}

Status cudaEventSynchronize(Event* event) {
    ALONE_AND_WELL;
    return event->place.stream < 0 ? cudaSuccess : wait_for(event->place, event->clock);
}

// Whoever asks again has waited a while: the GPU has done the work meanwhile. What the host learns in this way depends on
// chance, so it does not count as an order: `known_to_host` stays as it is. Three questions in a row, with nothing queued
// between them, are a loop that waits (CuPy asks up to twice whether it can reuse a buffer, and does not wait).
Status cudaEventQuery(Event* event) {
    ALONE_AND_WELL;
    if (event->place.stream < 0) return cudaSuccess;
    static auto last = std::make_tuple(0, 0l, 0ul);
    static int in_a_row;
    auto question = std::make_tuple(event->place.stream, event->place.position, past.size());
    in_a_row = question == last ? in_a_row + 1 : 1;
    last = question;
    emulated_counts.polls += in_a_row == 3;
    bool done = in_a_row != 2 && streams[event->place.stream].done >= event->place.position;
    advance(event->place);
    return done ? cudaSuccess : cudaErrorNotReady;
}

Status cudaStreamQuery(void* stream) {
    ALONE_AND_WELL;
    int number = stream_of(stream);
    if (number < 0) return problem(cudaErrorInvalidResourceHandle, "cudaStreamQuery: no such stream");
    Event now{{number, streams[number].queued}, streams[number].clock};
    return cudaEventQuery(&now);
}

Status cudaStreamIsCapturing(void*, int* status) { return *status = 0, cudaSuccess; }

Status cudaEventElapsedTime(float* milliseconds, Event* from, Event* to) {
    return *milliseconds = 1e-3f * (to->place.position - from->place.position), cudaSuccess;
}
}

// cuBLAS --------------------------------------------------------------------------------------------------------------

enum { CUBLAS_INVALID_VALUE = 7, CUBLAS_EXECUTION_FAILED = 13, CUBLAS_NOT_SUPPORTED = 15 };
enum { R_32F = 0, R_16F = 2, R_16BF = 14 };
enum { COMPUTE_32F = 68, COMPUTE_32F_FAST_TF32 = 77 };

struct Handle { void* stream; };

struct Matrix {  // of a product, column-major; `transposed` when it is read
    char* begin;
    int type, rows, columns, ld;
    bool transposed;
    long stride;

    size_t itemsize() const { return type == R_32F ? 4 : 2; }
    char* at(long number, long row, long column) const {
        return begin + (number * stride + (transposed ? row * ld + column : column * ld + row)) * itemsize();
    }
    template <typename Do>
    void for_each_column(int count, Do with) const {
        int stored_columns = transposed ? rows : columns, stored_rows = transposed ? columns : rows;
        for (long number = 0; number < count; number++)
            for (long j = 0; j < stored_columns; j++)
                with(begin + (number * stride + j * ld) * itemsize(), stored_rows * itemsize());
    }
    float get(long number, long row, long column) const {
        char* p = at(number, row, column);
        return type == R_32F ? *(float*)p : type == R_16F ? (float)*(__half*)p : (float)*(__nv_bfloat16*)p;
    }
    void put(long number, long row, long column, float value) const {
        char* p = at(number, row, column);
        type == R_32F ? (void)(*(float*)p = value)
                      : type == R_16F ? (void)(*(__half*)p = (__half)value) : (void)(*(__nv_bfloat16*)p = value);
    }
};

static float as_tf32(float value) {  // 11 significant bits
    unsigned bits;
    memcpy(&bits, &value, 4);
    bits = (bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu;
    memcpy(&value, &bits, 4);
    return value;
}

static void multiply(float alpha, Matrix a, Matrix b, float beta, Matrix c, int count, bool rounded) {
    auto read = [](char* column, size_t n) { touch(column, n, false); };
    auto must_not_be_written = [](char* column, size_t n) {
        Allocation* own = array_of(column, n, true);
        auto first = own->written_by.begin() + (column - own->begin);
        if (std::find(first, first + n, running->id) != first + n) report("writes over a factor or a result");
    };
    a.for_each_column(count, read);
    b.for_each_column(count, read);
    if (beta != 0) c.for_each_column(count, read);
    c.for_each_column(count, [&](char* column, size_t n) {
        must_not_be_written(column, n);
        touch(column, n, true);
    });
    a.for_each_column(count, must_not_be_written);
    b.for_each_column(count, must_not_be_written);
    for (int number = 0; number < count; number++) {
        for (int i = 0; i < c.rows; i++)
            for (int j = 0; j < c.columns; j++) {
                float sum = 0;
                for (int k = 0; k < a.columns; k++) {
                    float x = a.get(number, i, k), y = b.get(number, k, j);
                    sum += rounded ? as_tf32(x) * as_tf32(y) : x * y;
                }
                sum = alpha * sum + (beta != 0 ? beta * c.get(number, i, j) : 0);
                c.put(number, i, j, sum);
            }
    }
}

static Status product(void* stream, float alpha, Matrix a, Matrix b, float beta, Matrix c, int count, int compute) {
    ALONE;
    if (failure) return CUBLAS_EXECUTION_FAILED;
    bool full = a.type == R_32F && c.type == R_32F && (compute == COMPUTE_32F || compute == COMPUTE_32F_FAST_TF32);
    bool half = a.type != R_32F && (c.type == a.type || c.type == R_32F) && compute == COMPUTE_32F;
    if (a.type != b.type || !(full || half))
        return problem(CUBLAS_NOT_SUPPORTED, "product: types ", a.type, ", ", b.type, " into ", c.type,
                       ", computed as ", compute);
    for (const Matrix& x : {a, b, c})
        if (x.rows < 0 || x.columns < 0 || count < 0 || x.ld < std::max(1, x.transposed ? x.columns : x.rows))
            return problem(CUBLAS_INVALID_VALUE, "product: leading dimension ", x.ld, " of a matrix ", x.rows, " x ",
                           x.columns);
    emulated_counts.products++;
    std::string name = sentence("product ", c.rows, " x ", a.columns, " x ", c.columns);
    bool rounded = compute == COMPUTE_32F_FAST_TF32;
    Status code = enqueue_in(stream, name, [=] { multiply(alpha, a, b, beta, c, count, rounded); });
    return code ? CUBLAS_EXECUTION_FAILED : 0;
}

extern "C" {
Status cublasCreate_v2(Handle** handle) { return *handle = new Handle{}, 0; }
Status cublasDestroy_v2(Handle* handle) { return delete handle, 0; }
Status cublasSetStream_v2(Handle* handle, void* stream) { return handle->stream = stream, 0; }
Status cublasGetStream_v2(Handle* handle, void** stream) { return *stream = handle->stream, 0; }
Status cublasSetPointerMode_v2(Handle*, int) { return 0; }
Status cublasGetPointerMode_v2(Handle*, int* mode) { return *mode = 0, 0; }
Status cublasSetMathMode(Handle*, int) { return 0; }
Status cublasGetMathMode(Handle*, int* mode) { return *mode = 0, 0; }
Status cublasGetVersion_v2(Handle*, int* version) { return *version = 130000, 0; }

Status cublasGemmStridedBatchedEx(Handle* handle, int transpose_a, int transpose_b, int m, int n, int k,
                                  const float* alpha, char* a, int type_a, int ld_a, long stride_a, char* b,
                                  int type_b, int ld_b, long stride_b, const float* beta, char* c, int type_c,
                                  int ld_c, long stride_c, int count, int compute, int) {
    return product(handle->stream, *alpha, {a, type_a, m, k, ld_a, transpose_a != 0, stride_a},
                   {b, type_b, k, n, ld_b, transpose_b != 0, stride_b}, *beta, {c, type_c, m, n, ld_c, false, stride_c},
                   count, compute);
}

Status cublasGemmEx(Handle* handle, int transpose_a, int transpose_b, int m, int n, int k, const float* alpha, char* a,
                    int type_a, int ld_a, char* b, int type_b, int ld_b, const float* beta, char* c, int type_c,
                    int ld_c, int compute, int algorithm) {
    return cublasGemmStridedBatchedEx(handle, transpose_a, transpose_b, m, n, k, alpha, a, type_a, ld_a, 0, b, type_b,
                                      ld_b, 0, beta, c, type_c, ld_c, 0, 1, compute, algorithm);
}

// NCCL with a single rank, whose sums are its own numbers -------------------------------------------------------------

const Status NCCL_UNHANDLED_CUDA_ERROR = 1;

struct Id { char bytes[128]; };

Status ncclGetVersion(int* version) { return *version = 22800, 0; }
Status ncclGetUniqueId(Id* id) { return *id = {}, 0; }
Status ncclCommInitRankConfig(void** world, int size, Id, int, void*) { return *world = (void*)1, size == 1 ? 0 : 5; }
Status ncclCommGetAsyncError(void*, int* error) { return *error = 0, 0; }
Status ncclCommAbort(void*) { return 0; }
Status ncclCommDestroy(void*) { return 0; }
const char* ncclGetErrorString(int) { return "NCCL is emulated for one rank"; }

Status ncclAllReduce(const void* from, void* to, size_t n, int type, int, void*, void* stream) {
    ALONE;
    if (failure) return NCCL_UNHANDLED_CUDA_ERROR;
    static const int SIZES[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
    Status code = enqueue_in(stream, "NCCL", [=] {
        touch(from, n * SIZES[type], false);
        touch(to, n * SIZES[type], true);
        memmove(to, from, n * SIZES[type]);
    });
    return code ? NCCL_UNHANDLED_CUDA_ERROR : 0;
}

Status ncclBroadcast(const void* from, void* to, size_t n, int type, int, void* world, void* stream) {
    return ncclAllReduce(from, to, n, type, 0, world, stream);
}

// For the tests -------------------------------------------------------------------------------------------------------

// Run everything that is queued, and return the problems since the last call, a line each.
const char* emulated_problems() {
    ALONE;
    static std::string taken;
    for (size_t i = 0; i < streams.size(); i++) advance({(int)i, streams[i].queued});
    failure = cudaSuccess;
    taken = std::move(problems);
    problems.clear();
    return taken.c_str();
}
}
