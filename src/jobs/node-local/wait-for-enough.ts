/** Waits until all answers are there, or until `patienceMs` after the first one that suffices.
 * Rejects if one of them does before that. */
export async function waitForEnough(
  answers: readonly Promise<boolean>[],
  patienceMs: number,
): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const patience = new Promise<void>((resolve) => {
    const begin = (suffices: boolean): void => {
      if (suffices) timer ??= setTimeout(resolve, patienceMs);
    };
    for (const answer of answers) answer.then(begin, () => undefined);
  });
  await Promise.race([Promise.all(answers), patience]);
  clearTimeout(timer);
}
