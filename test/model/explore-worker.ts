/* Explores in a thread of its own, which may have more memory than the tests' process. */
import { parentPort, workerData } from 'node:worker_threads';
import { explore } from './explore.ts';
import type { Protocol } from './protocol.ts';

// oxlint-disable-next-line unicorn/require-post-message-target-origin -- A thread has no origin.
parentPort?.postMessage(explore(workerData as Protocol));
