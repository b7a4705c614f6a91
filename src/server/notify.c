/* SPDX-License-Identifier: Apache-2.0 */
/*
 * systemd's notification protocol: one datagram of NAME=value lines to the socket that NOTIFY_SOCKET names ('@' stands for
 * an abstract one). Losing one is no fault of ours: nothing is reported back.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "server.h"

void tarn_notify(const char *text)
{
    tarn_str path = tarn_str_of(getenv("NOTIFY_SOCKET"));
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    if (path.n < 2 || path.n >= sizeof to.sun_path || (path.p[0] != '/' && path.p[0] != '@')) {
        return;
    }
    memcpy(to.sun_path, path.p, path.n);
    if (to.sun_path[0] == '@') {
        to.sun_path[0] = '\0';
    }
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return;
    }
    socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + path.n);
    (void)sendto(fd, text, strlen(text), MSG_NOSIGNAL, (const struct sockaddr *)&to, len);
    (void)close(fd);
}
