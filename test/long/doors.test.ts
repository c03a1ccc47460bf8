import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ATTACKS } from '../harness/attacks/attacks.ts';
import { AttackedDoor, type AttackOutcome } from '../harness/attacks/attacked-door.ts';
import type { DoorKind } from '../harness/attacks/door.ts';
import { formatRow, ROW_HEADS } from '../harness/attacks/table.ts';

/* test/README.md says which variables choose a part of this. */
const only = new RegExp(process.env['DOORS_ONLY'] ?? '');
const durationMs = Number(process.env['DOORS_SECONDS'] ?? 30) * 1_000;
const counts = (process.env['DOORS_STRANGERS'] ?? '1,50').split(',').map(Number);
const DOORS: readonly DoorKind[] = ['tls', 'tls, same address', 'plaintext'];

/** What --max-in-flight lets by at once. */
const WARM_UP_CALLS = 500;
/** Of calls while strangers are turned away. On a plaintext door strangers are callers like others,
 * so only that the gateway lives and no call fails is promised there. */
const MOST_P99_MS = 250;
const MOST_GROWTH = 1.2;
/** Strangers whose requests are served leave a larger heap behind (3.0 times were observed), which
 * --max-old-space-size ends. */
const MOST_GROWTH_AT_PLAINTEXT = 4;
/** OpenSSL's memory for a thousand handshakes at once, begun or waited for, is not given back to
 * the system; a TLS server of Node alone, without our code, grows likewise, by less each time:
 * twelve attacks in a row by silent connections led from 80 MB to 126, 147, 164, at last 176 MB. */
const MOST_GROWTH_BY_HANDSHAKES = 2.2;

/** Of an attack that is made again and again, after whose fourth time memory has leveled off. */
const REPEATED_MS = 3_000;
/** Ten such attacks are 12,000 connections, of which 4 kB each would be 48 MiB. */
const MOST_KEPT_BYTES = 16 * 1024 * 1024;

interface Result {
  readonly outcomes: readonly AttackOutcome[];
  /** Resident memory at rest after all of them; 0 if the gateway has ended. */
  readonly rssAfter: number;
}

describe('a gateway under attack by strangers', () => {
  console.log(ROW_HEADS);
  for (const door of DOORS)
    for (const name of ATTACKS.keys())
      if (only.test(`${door}: ${name}`))
        it(
          `serves its allowed caller and keeps its memory: ${door}, ${name}`,
          { timeout: 300_000 + counts.length * durationMs * 2 },
          async () => {
            const { outcomes, rssAfter } = await attackBy(door, name);
            for (const outcome of outcomes) console.log(formatRow(outcome, rssAfter));
            for (const outcome of outcomes) assertUnharmed(outcome);
            const { rssBefore } = outcomes[0] ?? assert.fail('no strangers');
            assert.ok(
              rssAfter <= rssBefore * mostGrowth(door, name),
              `${rssAfter} bytes, ${rssBefore} before`,
            );
          },
        );

  it(
    'keeps nothing of the connections that it has ended: tls, connections with one call',
    { timeout: 600_000 },
    async () => {
      const bed = await AttackedDoor.open('tls', WARM_UP_CALLS);
      const rssAfter = async (attacks: number): Promise<number> => {
        for (let i = 0; i < attacks; i += 1)
          await bed.attack('connections with one call', 50, REPEATED_MS);
        return bed.gateway.rss();
      };
      try {
        const leveledOff = await rssAfter(6);
        const later = await rssAfter(10);
        assert.ok(later < leveledOff + MOST_KEPT_BYTES, `${later} bytes, ${leveledOff} before`);
      } finally {
        await bed.close();
      }
    },
  );
});

/** Lets one attack be made by 1 stranger, then by 50; by a new gateway if the first one ended. */
async function attackBy(door: DoorKind, name: string): Promise<Result> {
  const outcomes: AttackOutcome[] = [];
  let bed = await AttackedDoor.open(door, WARM_UP_CALLS);
  try {
    for (const strangers of counts) {
      if (bed.gateway.hasEnded) {
        await bed.close();
        bed = await AttackedDoor.open(door, WARM_UP_CALLS);
      }
      outcomes.push(await bed.attack(name, strangers, durationMs));
    }
    const limitBytes = bed.rssBefore * mostGrowth(door, name);
    const rssAfter = await bed.gateway.shrunkRss(limitBytes, () => bed.work());
    return { outcomes, rssAfter };
  } finally {
    await bed.close();
  }
}

function mostGrowth(door: DoorKind, attack: string): number {
  if (door === 'plaintext') return MOST_GROWTH_AT_PLAINTEXT;
  return /handshake|connections/.test(attack) ? MOST_GROWTH_BY_HANDSHAKES : MOST_GROWTH;
}

function assertUnharmed({ door, ending, defects, caller, ...outcome }: AttackOutcome): void {
  const { p99Ms, strangers } = outcome;
  const by = `by ${strangers} strangers`;
  assert.equal(ending, '', `the gateway ended, ${by}`);
  assert.deepEqual(defects, [], by);
  assert.deepEqual(caller.failures.slice(0, 5), [], by);
  if (door === 'plaintext') return;
  // New connections from the strangers' own network may have to wait, longer than a caller does.
  const isAlone = door === 'tls';
  const failures = caller.newConnectionFailures.filter(
    (failure) => isAlone || !failure.startsWith('not-forwarded'),
  );
  assert.deepEqual(failures.slice(0, 5), [], by);
  assert.ok(caller.newConnectionsMs.length > 0, by);
  assert.ok(p99Ms < MOST_P99_MS, `p99 ${p99Ms} ms, ${by}`);
}
