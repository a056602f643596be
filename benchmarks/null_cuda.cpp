// A driver that does nothing: takes the place of functions of the emulated GPU (tests/emulated_gpu), so that what remains
// of a step's time is the host's. Memory is only addresses; what the host reads back is zero; launches, products and
// copies are counted.
#include <driver_types.h>

#include <cstring>
#include <map>
#include <string>

using Status = int;

static std::map<std::string, long> counts;  // by name; of kernels: C++ names
static char* next_free = (char*)(1ll << 44);

static Status counted(const char* name) { return counts[name]++, 0; }

extern "C" {
Status cudaMalloc(void** made, size_t size) {
    *made = next_free;
    next_free += (size + 511) / 512 * 512;
    return 0;
}
Status cudaFree(void*) { return 0; }

Status cudaMemcpyAsync(void* to, const void*, size_t n, cudaMemcpyKind kind, void*) {
    if (kind == cudaMemcpyDeviceToHost) memset(to, 0, n);
    return counted("copy");
}
Status cudaMemcpy(void* to, const void* from, size_t n, cudaMemcpyKind kind) {
    return cudaMemcpyAsync(to, from, n, kind, nullptr);
}
Status cudaMemsetAsync(void*, int, size_t, void*) { return counted("memset"); }

Status cudaEventRecord(void*, void*) { return 0; }
Status cudaEventQuery(void*) { return 0; }
Status cudaEventSynchronize(void*) { return 0; }
Status cudaStreamWaitEvent(void*, void*, unsigned) { return 0; }
Status cudaStreamSynchronize(void*) { return 0; }
Status cudaDeviceSynchronize() { return 0; }

Status cuModuleLoadData(void** module, const void*) { return *module = (void*)1, 0; }
Status cuModuleGetFunction(void** kernel, void*, const char* name) { return *kernel = &*counts.insert({name, 0}).first, 0; }
Status cuLaunchKernel(std::pair<const std::string, long>* kernel, unsigned, unsigned, unsigned, unsigned, unsigned,
                      unsigned, unsigned, void*, void**, void**) {
    return kernel->second++, 0;
}

Status cublasGemmEx() { return counted("product"); }
Status cublasGemmStridedBatchedEx() { return counted("product"); }

// How often each was called so far, a line each.
const char* null_counts() {
    static std::string text;
    text.clear();
    for (auto& [name, n] : counts)
        if (n) text += std::to_string(n) + " " + name + "\n";
    return text.c_str();
}
}
