/** What `sutler all` and its Redis need while 300 claims are created at once and one command runs.
 * Measured by test/real/memory-limit.test.ts. */
const NEEDED_MIB = 128;

/** Says that the container's limit is too small; undefined if it is not.
 * @param limitBytes  as process.constrainedMemory() has it; without a limit 0 or more than any
 *   machine has */
export function lackOfMemory(limitBytes: number): string | undefined {
  const limitMib = Math.floor(limitBytes / 2 ** 20);
  if (limitMib === 0 || limitMib >= NEEDED_MIB) return undefined;
  return (
    `the limit of memory is ${limitMib} MiB: with many claims at once the kernel may kill sutler; ` +
    `set resources.limits.memory of the container to ${NEEDED_MIB}Mi or more`
  );
}
