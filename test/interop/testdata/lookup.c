// Looks a name up argv[2] times, as programs do, and prints each address of each answer.
#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

int main(int argc, char **argv) {
	if (argc != 3)
		return 2;
	for (int n = atoi(argv[2]); n > 0; n--) {
		struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *all;
		int err = getaddrinfo(argv[1], "80", &hints, &all);
		if (err) {
			fprintf(stderr, "%s: %s\n", argv[1], gai_strerror(err));
			return 1;
		}
		for (struct addrinfo *i = all; i; i = i->ai_next) {
			char text[INET_ADDRSTRLEN];
			if (i->ai_family == AF_INET) {
				struct sockaddr_in *addr = (struct sockaddr_in *)i->ai_addr;
				puts(inet_ntop(AF_INET, &addr->sin_addr, text, sizeof text));
			}
		}
		freeaddrinfo(all);
	}
	return 0;
}
