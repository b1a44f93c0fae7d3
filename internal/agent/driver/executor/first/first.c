//go:build cgo

// Process 1 of an isolated task: see first.go. It runs before Go does, so that
// it has one thread and starts at once. It uses little of the C library.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

// Descriptors, and what is reported for a command that is nowhere in PATH; as
// first.go has them.
enum { ASSIGNMENT = 3, REPORT = 4, NOT_FOUND = -1 };

static void die(const char *what)
{
	dprintf(2, "berth: task-init: %s: %s\n", what, strerror(errno));
	_exit(255);
}

// content reads the assignment: strings, each with its zero.
static char *content(void)
{
	struct stat st;
	if (fstat(ASSIGNMENT, &st) != 0)
		die("read assignment");
	char *text = malloc(st.st_size + 1);
	if (text == NULL)
		die("read assignment");
	for (off_t at = 0; at < st.st_size;) {
		ssize_t n = pread(ASSIGNMENT, text + at, st.st_size - at, at);
		if (n <= 0)
			die("read assignment");
		at += n;
	}
	text[st.st_size] = 0;
	close(ASSIGNMENT);
	return text;
}

static char *next(char **at)
{
	char *s = *at;
	*at += strlen(s) + 1;
	return s;
}

static char **list(char **at, int count)
{
	char **all = calloc(count + 1, sizeof(char *));
	if (all == NULL)
		die("read assignment");
	for (int i = 0; i < count; i++)
		all[i] = next(at);
	return all;
}

// execute runs a command, which it finds in the task's PATH, and answers why it
// could not. The current directory is nobody's intention: it is left out.
static int execute(char **args, char **env)
{
	if (strchr(args[0], '/') != NULL) {
		execve(args[0], args, env);
		return errno;
	}
	const char *path = "";
	for (char **kv = env; *kv != NULL; kv++)
		if (strncmp(*kv, "PATH=", 5) == 0)
			path = *kv + 5;
	while (*path != 0) {
		size_t size = strcspn(path, ":");
		char file[4096];
		struct stat st;
		if (*path == '/' && size + strlen(args[0]) + 2 < sizeof(file)) {
			snprintf(file, sizeof(file), "%.*s/%s", (int)size, path, args[0]);
			if (stat(file, &st) == 0 && S_ISREG(st.st_mode) && (st.st_mode & 0111) != 0) {
				execve(file, args, env);
				return errno;
			}
		}
		path += size;
		if (*path == ':')
			path++;
	}
	return NOT_FOUND;
}

// start forks the command into a session of its own. It is process 2, always:
// programs that write down their number find their own in an old file.
static pid_t start(char **args, char **env, const sigset_t *mask)
{
	int failure[2], why = 0;
	if (pipe2(failure, O_CLOEXEC) != 0)
		die("make pipe");
	pid_t pid = fork();
	if (pid < 0)
		die("fork");
	if (pid == 0) {
		setsid();
		sigprocmask(SIG_SETMASK, mask, NULL);
		why = execute(args, env);
		ssize_t n = write(failure[1], &why, sizeof(why));
		_exit(n == sizeof(why) ? 127 : 126);
	}
	close(failure[1]);
	ssize_t n;
	while ((n = read(failure[0], &why, sizeof(why))) < 0 && errno == EINTR)
		;
	close(failure[0]);
	if (n > 0) {
		dprintf(REPORT, "{\"errno\":%d}\n", why);
		_exit(0);
	}
	return pid;
}

static void run(void)
{
	char *at = content();
	int argc = atoi(next(&at)), envc = atoi(next(&at));
	char **args = list(&at, argc), **env = list(&at, envc);
	if (argc < 1 || fcntl(REPORT, F_SETFD, FD_CLOEXEC) != 0)
		die("read assignment");
	// No process of the task may look into this one, or take it over.
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0)
		die("become opaque");
	// Blocked signals reach process 1 too, and wait until they are taken.
	const int passed[] = { SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2 };
	sigset_t wanted, before;
	sigemptyset(&wanted);
	for (size_t i = 0; i < sizeof(passed) / sizeof(passed[0]); i++)
		sigaddset(&wanted, passed[i]);
	if (sigprocmask(SIG_BLOCK, &wanted, &before) != 0)
		die("block signals");
	pid_t pid = start(args, env, &before);
	dprintf(REPORT, "{}\n");
	for (;;) {
		int sig = sigwaitinfo(&wanted, NULL), status;
		// The number is the command's as long as it is not reaped, below.
		if (sig > 0 && sig != SIGCHLD)
			kill(pid, sig);
		for (pid_t child; (child = waitpid(-1, &status, WNOHANG)) > 0;) {
			if (child != pid)
				continue; // an orphan
			if (WIFSIGNALED(status))
				dprintf(REPORT, "{\"signal\":%d}\n", WTERMSIG(status));
			else
				dprintf(REPORT, "{\"code\":%d}\n", WEXITSTATUS(status));
			_exit(0);
		}
	}
}

__attribute__((constructor)) static void first(int argc, char **argv)
{
	if (argc == 2 && getpid() == 1 && strcmp(argv[1], "task-init") == 0)
		run();
}
