/*
 * The sandbox container's only process, for tests and the demo: it holds the pod's namespaces open, collects the
 * children that a shared process namespace leaves to process 1, and ends at once when asked to.
 */
#include <signal.h>
#include <stddef.h>
#include <sys/wait.h>

int main(void)
{
	sigset_t wanted;
	int signal_number;

	/*
	 * Blocked and then fetched one by one: no handler, so nothing runs at an arbitrary point. Process 1 of a pid
	 * namespace ignores signals without a handler, but blocked ones still arrive here.
	 */
	sigemptyset(&wanted);
	sigaddset(&wanted, SIGTERM);
	sigaddset(&wanted, SIGINT);
	sigaddset(&wanted, SIGCHLD);
	if (sigprocmask(SIG_BLOCK, &wanted, NULL) != 0)
		return 1;

	for (;;) {
		if (sigwait(&wanted, &signal_number) != 0)
			return 2;
		if (signal_number != SIGCHLD)
			return 0;
		/* One SIGCHLD may stand for several children. */
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
	}
}
