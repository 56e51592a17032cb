/*
 * Says whose power it has, for the suite. Its image has it owned by root with the setuid bit: what it says is whether the
 * bit counted.
 */
#include <stdio.h>
#include <unistd.h>

int main(void)
{
	printf("Effective uid: %d\n", (int)geteuid());
	return 0;
}
