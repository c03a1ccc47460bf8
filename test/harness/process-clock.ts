import { writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';

/** Environment variable of a child: the file that says how far its clock is off. */
export const CLOCK_FILE = 'SUTLER_TEST_CLOCK';

const PRELOAD = fileURLToPath(new URL('./shift-clock.js', import.meta.url));

/** The clock of a child process, which can be set wrong while the process runs. It stays wrong when
 * the process is restarted. */
export class ProcessClock {
  /** Arguments of node for the child. */
  readonly nodeArgs = ['--import', PRELOAD] as const;
  /** Environment of the child. */
  readonly env: Readonly<Record<string, string>>;
  readonly #file: string;

  /** @param file  a file of its own, which need not exist */
  constructor(file: string) {
    this.#file = file;
    this.env = { [CLOCK_FILE]: file };
  }

  /** Sets the clock `ms` ahead of the machine's clock, or behind it where negative; 0 sets it
   * right. Takes effect in the child within 100 ms. */
  shift(ms: number): Promise<void> {
    return writeFile(this.#file, String(ms));
  }
}
