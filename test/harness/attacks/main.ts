import { setMaxListeners } from 'node:events';
import { setPriority } from 'node:os';
import { ATTACKS } from './attacks.ts';
import { type AttackTarget, Stranger } from './stranger.ts';

/* The program that holds the strangers, so that they share no event loop with the gateway or with
 * its callers. It gets orders by IPC, one after another, and ends with its parent. */

/** What the program shall do. */
export interface AttackOrder {
  /** A name of ATTACKS. */
  readonly attack: string;
  readonly target: AttackTarget;
  readonly strangers: number;
  /** Whether each stranger connects from an address of its own: 127.0.0.2 and up. Otherwise all
   * have the address of the allowed caller. */
  readonly ownAddresses: boolean;
}

/** Starts an attack, or ends the one under way: the program then reports. */
export type AttackMessage = AttackOrder | 'end';

/** What the strangers did. */
export interface AttackSummary {
  readonly connections: number;
  readonly rounds: number;
}

/** The program's niceness: the strangers must not take the processors from the gateway, because a
 * real stranger has processors of its own. */
const NICENESS = 15;

let end = new AbortController();

process.on('message', (message: AttackMessage) => {
  if (message === 'end') end.abort();
  else void carryOut(message).then((summary) => process.send?.(summary));
});
process.once('disconnect', () => process.exit(0));
setPriority(NICENESS);

async function carryOut(order: AttackOrder): Promise<AttackSummary> {
  const attack = ATTACKS.get(order.attack);
  if (attack === undefined) throw new Error(`there is no attack ${order.attack}`);
  end = new AbortController();
  setMaxListeners(0, end.signal);
  const strangers = Array.from(
    { length: order.strangers },
    (_, i) =>
      new Stranger({
        target: order.target,
        localAddress: order.ownAddresses ? `127.0.0.${i + 2}` : undefined,
        maxSockets: Math.ceil(attack.sockets / order.strangers),
        signal: end.signal,
      }),
  );
  await Promise.all(strangers.map((stranger) => stranger.attack(attack.run)));
  const sum = (key: keyof AttackSummary): number =>
    strangers.reduce((total, stranger) => total + stranger[key], 0);
  return { connections: sum('connections'), rounds: sum('rounds') };
}
