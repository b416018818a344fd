/* The wall clock of a process and its children, shifted by the nanoseconds at the start of the file named by SKEW.
 *
 * Loaded with LD_PRELOAD. Only CLOCK_REALTIME, gettimeofday and time are shifted: intervals, and with them sleeps and
 * timeouts, stay right, as they do when an administrator or an NTP daemon sets the clock of a machine.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define BILLION 1000000000LL

static const volatile int64_t *skew;

__attribute__((constructor)) static void map(void)
{
    const char *path = getenv("SKEW");
    int descriptor = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (descriptor < 0)
        return;
    void *page = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, descriptor, 0);
    close(descriptor);
    if (page != MAP_FAILED)
        skew = page;
}

static int64_t now(clockid_t id)
{
    struct timespec real;
    syscall(SYS_clock_gettime, id, &real);
    return real.tv_sec * BILLION + real.tv_nsec + (skew ? *skew : 0);
}

int clock_gettime(clockid_t id, struct timespec *out)
{
    if (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE)
        return (int)syscall(SYS_clock_gettime, id, out);
    int64_t shifted = now(id);
    out->tv_sec = shifted / BILLION;
    out->tv_nsec = shifted % BILLION;
    return 0;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone)
{
    (void)zone;
    int64_t shifted = now(CLOCK_REALTIME);
    out->tv_sec = shifted / BILLION;
    out->tv_usec = shifted % BILLION / 1000;
    return 0;
}

time_t time(time_t *out)
{
    time_t shifted = now(CLOCK_REALTIME) / BILLION;
    if (out)
        *out = shifted;
    return shifted;
}
