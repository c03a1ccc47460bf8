import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { InFlight } from '#src/csi-gateway/in-flight.ts';
import type { Ticket } from '#src/csi-gateway/in-flight.ts';

const name = (value: string): { kind: 'name'; value: string } => ({ kind: 'name', value });
const handle = (value: string): { kind: 'handle'; value: string } => ({ kind: 'handle', value });

function taken(flight: InFlight, key: Parameters<InFlight['begin']>[0]): Ticket {
  const begun = flight.begin(key, 'test');
  assert.ok(begun.ok);
  return begun.ticket;
}

describe('InFlight', () => {
  it('lets one call at a time have a name, and tells the second who has it', () => {
    const flight = new InFlight();
    const first = flight.begin(name('v'), 'CreateVolume');
    assert.ok(first.ok);
    assert.deepEqual(flight.begin(name('v'), 'x'), { ok: false, running: 'CreateVolume' });
    taken(flight, name('other'));
    first.ticket.release();
    taken(flight, name('v'));
  });

  it('does not take a name for a handle of the same letters', () => {
    const flight = new InFlight();
    taken(flight, name('v'));
    taken(flight, handle('v'));
  });

  it('keeps create and delete of one volume apart once it knows its handle, either way round', () => {
    const flight = new InFlight();
    flight.tie('v', 'h');
    const create = taken(flight, name('v'));
    assert.equal(flight.begin(handle('h'), 'x').ok, false);
    create.release();
    const remove = taken(flight, handle('h'));
    assert.equal(flight.begin(name('v'), 'x').ok, false);
    flight.forget('h');
    assert.equal(flight.begin(name('v'), 'x').ok, false, 'the deletion still holds the name');
    remove.release();
    taken(flight, name('v'));
    taken(flight, handle('h'));
    assert.equal(flight.size, 2);
  });

  it('follows a name that gets a new handle', () => {
    const flight = new InFlight();
    flight.tie('v', 'old');
    flight.tie('v', 'new');
    taken(flight, name('v'));
    assert.equal(flight.begin(handle('new'), 'x').ok, false);
    taken(flight, handle('old'));
  });

  it('releases once, whatever a late second release says', () => {
    const flight = new InFlight();
    const first = taken(flight, name('v'));
    first.release();
    taken(flight, name('v'));
    first.release();
    assert.equal(flight.begin(name('v'), 'x').ok, false);
  });

  it('remembers a bounded number of volumes', () => {
    const flight = new InFlight();
    for (let i = 0; i <= 10_000; i += 1) flight.tie(`v${i}`, `h${i}`);
    taken(flight, name('v0'));
    taken(flight, handle('h0'));
    taken(flight, name('v10000'));
    assert.equal(flight.begin(handle('h10000'), 'x').ok, false);
  });
});
