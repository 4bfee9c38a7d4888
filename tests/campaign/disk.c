/* A disk that loses what was not synced, runs full, and loses power: preloaded into a campaign.
 *
 * Law: every write to a `data.mdb` below the root is remembered with the bytes it replaced until
 * its file is synced. `disk_lose` puts back any part of them, sector by sector, as a disk may that
 * lost power: of each sector some version since the last sync is left. Apart from the one fault
 * that is armed, every call is the system's.
 */
#define _GNU_SOURCE
#undef _FILE_OFFSET_BITS
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define SECTOR 512
#define FILES 64
#define META_BYTES (2 * 4096)

enum { NONE, FULL, POWER };

typedef struct Entry {
    int file;
    off_t offset;
    size_t length;
    char *old; /* zeros where the file ended */
    struct Entry *before;
} Entry;

static char root[4096];
static size_t root_length; /* 0: nothing is remembered and nothing fails */
static char paths[FILES][4096];
static off_t sizes[FILES]; /* when the file was last synced; -1: no write since */
static int files;
static Entry *last;
static int armed, countdown, failing, is_short, is_dead;
static long writes, syncs, faults;

/* Held by the thread whose call is looked at, from `enter` to `leave`. */
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

static int file_of(int fd) {
    char link[64], path[4096];
    if (!root_length) return -1;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 9 || (size_t)length < root_length) return -1;
    path[length] = 0;
    if (memcmp(path, root, root_length) || strcmp(path + length - 9, "/data.mdb")) return -1;
    for (int i = 0; i < files; i++)
        if (!strcmp(paths[i], path)) return i;
    if (files == FILES) abort();
    strcpy(paths[files], path);
    sizes[files] = -1;
    return files++;
}

/* The number of a file that is watched, whose call has its turn then; -1: any other. */
static int enter(int fd) {
    if (!root_length) return -1;
    pthread_mutex_lock(&turn);
    int file = file_of(fd);
    if (file < 0) pthread_mutex_unlock(&turn);
    return file;
}

static ssize_t leave(ssize_t result) {
    int error = errno;
    pthread_mutex_unlock(&turn);
    errno = error;
    return result;
}

static void forget(int file) {
    Entry **at = &last;
    while (*at) {
        Entry *entry = *at;
        if (file < 0 || entry->file == file) {
            *at = entry->before;
            free(entry->old);
            free(entry);
        } else {
            at = &entry->before;
        }
    }
    for (int i = 0; i < files; i++)
        if (file < 0 || i == file) sizes[i] = -1;
}

static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static ssize_t (*real_pwritev)(int, const struct iovec *, int, off_t);
static ssize_t (*real_writev)(int, const struct iovec *, int);
static ssize_t (*real_write)(int, const void *, size_t);
static int (*real_fsync)(int);
static int (*real_fdatasync)(int);

__attribute__((constructor)) static void find_real(void) {
    real_pwrite = dlsym(RTLD_NEXT, "pwrite64");
    real_pwritev = dlsym(RTLD_NEXT, "pwritev64");
    real_writev = dlsym(RTLD_NEXT, "writev");
    real_write = dlsym(RTLD_NEXT, "write");
    real_fsync = dlsym(RTLD_NEXT, "fsync");
    real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
}

/* The errno that this call fails with; 0: none. */
static int fault(int is_data_write) {
    if (is_dead) return EIO;
    if (armed == POWER && --countdown <= 0) {
        is_dead = 1;
        faults++;
        return EIO;
    }
    if (armed == FULL && is_data_write) {
        if (countdown > 0) countdown--;
        if (countdown == 0 && failing > 0) {
            failing--;
            faults++;
            return ENOSPC;
        }
    }
    return 0;
}

/* Asks for room; the disk that runs full has none once it has struck. */
int posix_fallocate(int fd, off_t offset, off_t length) {
    static int (*real)(int, off_t, off_t);
    if (!real) real = dlsym(RTLD_NEXT, "posix_fallocate");
    return armed == FULL && countdown == 0 ? ENOSPC : real(fd, offset, length);
}

int posix_fallocate64(int fd, off_t offset, off_t length) {
    return posix_fallocate(fd, offset, length);
}

static void remember(int file, int fd, off_t offset, size_t length) {
    writes++;
    if (fcntl(fd, F_GETFL) & O_DSYNC) return; /* is on disk when the call returns */
    struct stat status;
    fstat(fd, &status);
    if (sizes[file] < 0) sizes[file] = status.st_size;
    Entry *entry = malloc(sizeof *entry);
    entry->file = file;
    entry->offset = offset;
    entry->length = length;
    entry->old = calloc(1, length);
    entry->before = last;
    int reader = open(paths[file], O_RDONLY);
    if (reader < 0 || pread(reader, entry->old, length, offset) < 0) abort();
    close(reader);
    last = entry;
}

static ssize_t tracked(int file, int fd, const struct iovec *parts, int count, off_t offset) {
    size_t length = 0;
    for (int i = 0; i < count; i++) length += parts[i].iov_len;
    int error = fault(offset >= META_BYTES);
    if (error == ENOSPC && is_short && length >= 2 * SECTOR) {
        /* A disk that runs full in the middle of a call takes the first part. */
        size_t part = parts[0].iov_len < length ? parts[0].iov_len : length / 2;
        remember(file, fd, offset, part);
        return real_pwrite(fd, parts[0].iov_base, part, offset);
    }
    if (error) {
        errno = error;
        return -1;
    }
    remember(file, fd, offset, length);
    return real_pwritev(fd, parts, count, offset);
}

ssize_t pwrite64(int fd, const void *buffer, size_t length, off_t offset) {
    int file = enter(fd);
    if (file < 0) return real_pwrite(fd, buffer, length, offset);
    struct iovec part = {(void *)buffer, length};
    return leave(tracked(file, fd, &part, 1, offset));
}

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off_t offset) {
    int file = enter(fd);
    if (file < 0) return real_pwritev(fd, parts, count, offset);
    return leave(tracked(file, fd, parts, count, offset));
}

ssize_t pwrite(int fd, const void *b, size_t n, off_t o) { return pwrite64(fd, b, n, o); }
ssize_t pwritev(int fd, const struct iovec *p, int n, off_t o) { return pwritev64(fd, p, n, o); }

ssize_t writev(int fd, const struct iovec *parts, int count) {
    int file = enter(fd);
    if (file < 0) return real_writev(fd, parts, count);
    off_t at = lseek(fd, 0, SEEK_CUR);
    ssize_t done = tracked(file, fd, parts, count, at);
    if (done > 0) lseek(fd, at + done, SEEK_SET);
    return leave(done);
}

ssize_t write(int fd, const void *buffer, size_t length) {
    int file = enter(fd);
    if (file < 0) return real_write(fd, buffer, length);
    struct iovec part = {(void *)buffer, length};
    off_t at = lseek(fd, 0, SEEK_CUR);
    ssize_t done = tracked(file, fd, &part, 1, at);
    if (done > 0) lseek(fd, at + done, SEEK_SET);
    return leave(done);
}

static int synced(int fd, int (*real)(int)) {
    int file = enter(fd);
    if (file < 0) return real(fd);
    int error = fault(0);
    if (error) {
        errno = error;
        return (int)leave(-1);
    }
    syncs++;
    forget(file);
    return (int)leave(0); /* the folder is in memory: there is nothing to wait for */
}

int fsync(int fd) { return synced(fd, real_fsync); }
int fdatasync(int fd) { return synced(fd, real_fdatasync); }

/* -- what the campaign calls ------------------------------------------------------------------ */

void disk_begin(const char *folder) {
    forget(-1);
    files = 0;
    strncpy(root, folder, sizeof root - 1);
    root_length = strlen(root);
    armed = NONE;
    is_dead = 0;
}

void disk_end(void) {
    forget(-1);
    root_length = 0;
    armed = NONE;
    is_dead = 0;
}

/* The next fault: `kind` at the call number `after`, counted from 1; `times` calls run full. */
void disk_arm(int kind, int after, int times, int shorten) {
    armed = kind;
    countdown = after;
    failing = times;
    is_short = shorten;
}

void disk_disarm(void) { armed = NONE; }

/* From here on nothing reaches the files, until `disk_lose`. */
void disk_freeze(void) { is_dead = 1; }
int disk_is_dead(void) { return is_dead; }
long disk_writes(void) { return writes; }
long disk_syncs(void) { return syncs; }
long disk_faults(void) { return faults; }

/* Power is back. Of each sector written since its file's last sync the newest version is kept with
 * a probability of keep/100, else the one before it, and so on. The number of sectors put back. */
long disk_lose(uint64_t seed, int keep) {
    static struct { int file; off_t sector; } settled[1 << 16];
    int settled_count = 0;
    long lost = 0;
    uint64_t state = seed * 2654435761u + 88172645463325252ull;
    for (Entry *entry = last; entry; entry = entry->before) {
        int fd = open(paths[entry->file], O_RDWR);
        if (fd < 0) abort();
        for (size_t done = 0; done < entry->length;) {
            off_t at = entry->offset + (off_t)done;
            size_t part = SECTOR - (size_t)(at % SECTOR);
            if (part > entry->length - done) part = entry->length - done;
            int is_settled = 0;
            for (int i = 0; i < settled_count && !is_settled; i++)
                is_settled = settled[i].file == entry->file && settled[i].sector == at / SECTOR;
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            if (!is_settled && (int)(state % 100) < keep) {
                if (settled_count == 1 << 16) abort();
                settled[settled_count].file = entry->file;
                settled[settled_count++].sector = at / SECTOR;
            } else if (!is_settled) {
                if (real_pwrite(fd, entry->old + done, part, at) < 0) abort();
                lost++;
            }
            done += part;
        }
        close(fd);
    }
    for (int i = 0; i < files; i++)
        if (keep == 0 && sizes[i] >= 0 && truncate(paths[i], sizes[i])) abort();
    forget(-1);
    armed = NONE;
    is_dead = 0;
    return lost;
}
