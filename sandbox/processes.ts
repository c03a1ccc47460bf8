import type { Process } from '#src/dispatch.ts';
import { processes as shipped } from '#src/processes.ts';
import * as sandboxApi from './api/flags.ts';
import * as sandboxDriver from './driver/flags.ts';
import * as sandboxEventSender from './event-sender/flags.ts';
import * as sandbox from './flags.ts';

/** The sandbox's own processes, by name. They are not shipped. */
const own: Readonly<Record<string, Process>> = {
  sandbox: { ...sandbox, load: () => import('./main.ts') },
  'sandbox-api': { ...sandboxApi, load: () => import('./api/main.ts') },
  'sandbox-driver': { ...sandboxDriver, load: () => import('./driver/main.ts') },
  'sandbox-event-sender': {
    ...sandboxEventSender,
    load: () => import('./event-sender/main.ts'),
  },
};

/** Every process of `cli.ts`: the shipped ones and the sandbox's. */
export const processes: Readonly<Record<string, Process>> = { ...shipped, ...own };
