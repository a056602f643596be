// A libnccl.so.2 for machines without a GPU: the functions that CuPy's binding calls, for arrays in host memory.
//
// All ranks map one file, the board, with a counter and a slot for each. For a sum each rank copies a piece of its numbers
// into its slot; when all have arrived, each adds up all slots. The stream is ignored: work is done at once. As with NCCL, a
// call that needs a rank that has exited does not fail: ncclCommGetAsyncError reports the error later.
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SUCCESS = 0, SYSTEM_ERROR = 2, INVALID_ARGUMENT = 4, INVALID_USAGE = 5, REMOTE_ERROR = 6 };
enum { FLOAT16 = 6, FLOAT32 = 7, FLOAT64 = 8, BFLOAT16 = 9 };
enum { SUM = 0 };
enum { MOST_RANKS = 4, SLOT_BYTES = 1 << 16 };

// Set by tests: codes to return.
int error_of_id, error_of_connecting, error_of_all;

// Read by tests.
void* last_stream;
int destroyed, aborted;

typedef struct { char path[128]; } Id;

typedef struct {
    atomic_long arrivals[MOST_RANKS];
    char slots[MOST_RANKS][SLOT_BYTES];
} Board;

typedef struct {
    int size, rank, error, file;
    long turn;
    Board* board;
} Comm;

// Ranks ---------------------------------------------------------------------------------------------------------------

// Each rank locks a byte of the file. The system releases the lock when the process ends, however it ends.
static struct flock lock_of(int rank) {
    return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = rank, .l_len = 1};
}

static int has_left(Comm* comm, int rank) {
    struct flock lock = lock_of(rank);
    fcntl(comm->file, F_GETLK, &lock);
    return comm->board->arrivals[rank] > 0 && lock.l_type == F_UNLCK;
}

// Returns 1 when all ranks have arrived, 0 if one has exited.
static int barrier(Comm* comm) {
    atomic_long* arrivals = comm->board->arrivals;
    arrivals[comm->rank] = ++comm->turn;
    for (int rank = 0; rank < comm->size; rank++)
        while (arrivals[rank] < comm->turn) {
            if (has_left(comm, rank) && arrivals[rank] < comm->turn) {
                comm->error = REMOTE_ERROR;
                return 0;
            }
            usleep(100);
        }
    return 1;
}

int ncclGetUniqueId(Id* id) {
    snprintf(id->path, sizeof id->path, "%s/board_XXXXXX", getenv("TMPDIR"));
    int file = mkstemp(id->path);
    if (error_of_id || file < 0) return error_of_id ? error_of_id : SYSTEM_ERROR;
    close(file);
    return SUCCESS;
}

int ncclCommInitRankConfig(Comm** made, int size, Id id, int rank, void* config) {
    if (error_of_connecting) return error_of_connecting;
    Comm* comm = calloc(1, sizeof *comm);
    comm->size = size;
    comm->rank = rank;
    comm->file = open(id.path, O_RDWR);
    struct flock lock = lock_of(rank);
    if (ftruncate(comm->file, sizeof(Board)) || fcntl(comm->file, F_SETLK, &lock)) return SYSTEM_ERROR;
    comm->board = mmap(NULL, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, comm->file, 0);
    if (!barrier(comm)) return REMOTE_ERROR;
    if (rank == 0) unlink(id.path);
    *made = comm;
    return SUCCESS;
}

static int freed(Comm* comm) {
    munmap(comm->board, sizeof(Board));
    close(comm->file);
    free(comm);
    return SUCCESS;
}

int ncclCommDestroy(Comm* comm) {
    destroyed++;
    return freed(comm);
}

int ncclCommAbort(Comm* comm) {
    aborted++;
    return freed(comm);
}

int ncclCommGetAsyncError(Comm* comm, int* error) {
    if (!comm) return INVALID_ARGUMENT;
    *error = error_of_all ? error_of_all : comm->error;
    return SUCCESS;
}

// Numbers -------------------------------------------------------------------------------------------------------------

static size_t width_of(int type) {
    return type == FLOAT64 ? 8 : type == FLOAT32 ? 4 : type == FLOAT16 || type == BFLOAT16 ? 2 : 0;
}

static double number_at(const void* place, int type) {
    if (type == FLOAT64) return *(const double*)place;
    if (type == FLOAT32) return *(const float*)place;
    if (type == FLOAT16) return *(const _Float16*)place;
    uint32_t bits = (uint32_t)*(const uint16_t*)place << 16;                   // the upper half of a float
    float number;
    memcpy(&number, &bits, 4);
    return number;
}

static void put(void* place, int type, double number) {
    float rounded = (float)number;
    uint32_t bits;
    memcpy(&bits, &rounded, 4);
    if (type == FLOAT64) *(double*)place = number;
    if (type == FLOAT32) *(float*)place = rounded;
    if (type == FLOAT16) *(_Float16*)place = (_Float16)number;
    if (type == BFLOAT16) *(uint16_t*)place = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Collectives ---------------------------------------------------------------------------------------------------------

static size_t piece_bytes(size_t n_bytes, size_t begin) {
    return n_bytes - begin < SLOT_BYTES ? n_bytes - begin : SLOT_BYTES;
}

int ncclAllReduce(const char* from, char* to, size_t count, int type, int op, Comm* comm, void* stream) {
    size_t width = width_of(type), n_bytes = count * width;
    if (!comm || !width) return INVALID_ARGUMENT;
    if (op != SUM) return INVALID_USAGE;
    last_stream = stream;
    for (size_t begin = 0; begin < n_bytes; begin += SLOT_BYTES) {
        size_t length = piece_bytes(n_bytes, begin);
        memcpy(comm->board->slots[comm->rank], from + begin, length);
        if (!barrier(comm)) return SUCCESS;
        for (size_t place = 0; place < length; place += width) {
            double total = 0;
            for (int rank = 0; rank < comm->size; rank++) total += number_at(comm->board->slots[rank] + place, type);
            put(to + begin + place, type, total);
        }
        if (!barrier(comm)) return SUCCESS;
    }
    return SUCCESS;
}

int ncclBroadcast(const char* from, char* to, size_t count, int type, int root, Comm* comm, void* stream) {
    size_t width = width_of(type), n_bytes = count * width;
    if (!comm || !width || root < 0 || root >= comm->size) return INVALID_ARGUMENT;
    last_stream = stream;
    for (size_t begin = 0; begin < n_bytes; begin += SLOT_BYTES) {
        size_t length = piece_bytes(n_bytes, begin);
        if (comm->rank == root) memcpy(comm->board->slots[root], from + begin, length);
        if (!barrier(comm)) return SUCCESS;
        memcpy(to + begin, comm->board->slots[root], length);
        if (!barrier(comm)) return SUCCESS;
    }
    return SUCCESS;
}

// Other symbols that the binding needs ---------------------------------------------------------------------------------

const char* ncclGetErrorString(int error) { return error == REMOTE_ERROR ? "a rank is gone" : "the stub was told to fail"; }

#define NOT_HERE(name) int name(void) { return INVALID_USAGE; }
NOT_HERE(ncclAllGather)
NOT_HERE(ncclBcast)
NOT_HERE(ncclCommCount)
NOT_HERE(ncclCommCuDevice)
NOT_HERE(ncclCommInitAll)
NOT_HERE(ncclCommInitRank)
NOT_HERE(ncclCommSplit)
NOT_HERE(ncclCommUserRank)
NOT_HERE(ncclGetVersion)
NOT_HERE(ncclGroupEnd)
NOT_HERE(ncclGroupStart)
NOT_HERE(ncclRecv)
NOT_HERE(ncclReduce)
NOT_HERE(ncclReduceScatter)
NOT_HERE(ncclSend)
