import {
  checkHealthOf,
  FLOODED_REQUESTS,
  floodFrames,
  leaveMessagesUnfinished,
  sendEmptyMessages,
} from './bodies.ts';
import { stayAfterOneCall, stayHalfway, staySilent } from './connections.ts';
import {
  bombHeaders,
  continueHeaders,
  floodPings,
  floodPriorities,
  floodSettings,
  provokeAllResets,
  resetHealthChecks,
  resetRapidly,
  sendLargeHeaders,
} from './frames.ts';
import type { Stranger } from './stranger.ts';

/** One way to attack the gateway's door. */
export interface Attack {
  /** Runs until it is cut off, or until the stranger's signal aborts. It may reject then. */
  readonly run: (stranger: Stranger) => Promise<void>;
  /** Connections of all strangers together; each has at least one. */
  readonly sockets: number;
}

const MIB = 1024 * 1024;
const FEW = 50;

/** All attacks, by the names that a table shows; the first is none, for comparison. */
export const ATTACKS: ReadonlyMap<string, Attack> = new Map(
  Object.entries({
    'no attack': { run: stayAway, sockets: FEW },
    'health checks reset before their body': { run: resetHealthChecks, sockets: FEW },
    'health checks of 8 MiB': { run: checkHealthOf(8 * MIB), sockets: FEW },
    'health checks of 1 MiB': { run: checkHealthOf(MIB), sockets: FEW },
    ...Object.fromEntries(
      Object.entries(FLOODED_REQUESTS).map(([what, headers]) => [
        `one-byte frames of ${what}`,
        { run: floodFrames(headers, 1), sockets: FEW },
      ]),
    ),
    'empty frames': { run: floodEmptyFrames, sockets: FEW },
    'unfinished messages': { run: leaveMessagesUnfinished, sockets: 4 * FEW },
    'empty messages': { run: sendEmptyMessages, sockets: 4 * FEW },
    'connections with one call': { run: stayAfterOneCall, sockets: 600 },
    'silent connections': { run: staySilent, sockets: 1_100 },
    'half handshakes': { run: stayHalfway, sockets: 1_100 },
    'rapid resets': { run: resetRapidly, sockets: FEW },
    'provoked resets': { run: provokeAllResets, sockets: FEW },
    'CONTINUATION flood': { run: continueHeaders, sockets: FEW },
    'PING flood': { run: floodPings, sockets: FEW },
    'SETTINGS flood': { run: floodSettings, sockets: FEW },
    'PRIORITY flood': { run: floodPriorities, sockets: FEW },
    'HPACK bombs': { run: bombHeaders, sockets: FEW },
    'large headers': { run: sendLargeHeaders, sockets: FEW },
  } satisfies Readonly<Record<string, Attack>>),
);

/** Floods one kind of request after another with empty DATA frames. */
async function floodEmptyFrames(stranger: Stranger): Promise<void> {
  const requests = Object.values(FLOODED_REQUESTS);
  const headers = requests[stranger.rounds % requests.length] ?? {};
  await floodFrames(headers, 0)(stranger);
}

/** Does nothing until the attack is over. */
async function stayAway({ signal }: Stranger): Promise<void> {
  await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }));
}
