import type { Process } from '#src/dispatch.ts';
import { processes as shipped } from '#src/processes.ts';
import * as sandboxApi from './api/flags.ts';
import * as sandboxDriver from './driver/flags.ts';
import * as sandbox from './flags.ts';

/** The processes of the sandbox, which are not shipped, by their names. */
const own: Readonly<Record<string, Process>> = {
  sandbox: { ...sandbox, load: () => import('./main.ts') },
  'sandbox-api': { ...sandboxApi, load: () => import('./api/main.ts') },
  'sandbox-driver': { ...sandboxDriver, load: () => import('./driver/main.ts') },
};

/** The processes that are shipped, and those of the sandbox. */
export const processes: Readonly<Record<string, Process>> = { ...shipped, ...own };
