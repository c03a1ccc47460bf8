import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { AttackedDoor } from '../harness/attacks/attacked-door.ts';
import type { DoorKind } from '../harness/attacks/door.ts';

const STRANGERS = 4;
const DURATION_MS = 500;
/** The attacks that the gateway has always stood. test/long/doors.test.ts makes all of them for
 * longer, and measures latency and memory. */
const FLOODS = [
  'rapid resets',
  'provoked resets',
  'CONTINUATION flood',
  'PING flood',
  'SETTINGS flood',
  'PRIORITY flood',
  'HPACK bombs',
  'large headers',
  'empty frames',
];

for (const kind of ['tls', 'plaintext'] satisfies readonly DoorKind[])
  describe(`a gateway whose door is ${kind}, attacked by ${STRANGERS} strangers`, () => {
    let door: AttackedDoor;
    before(async () => (door = await AttackedDoor.open(kind, 0)));
    after(() => door.close());

    for (const name of FLOODS)
      it(`serves its allowed caller during: ${name}`, async () => {
        const { ending, defects, caller, summary } = await door.attack(
          name,
          STRANGERS,
          DURATION_MS,
        );
        assert.equal(ending, '');
        assert.deepEqual(defects, []);
        assert.deepEqual([...caller.failures, ...caller.newConnectionFailures], []);
        assert.ok(caller.latenciesMs.length > 0);
        assert.ok(summary.connections >= STRANGERS, String(summary.connections));
      });
  });
