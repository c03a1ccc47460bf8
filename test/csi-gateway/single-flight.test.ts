import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { SingleFlight, type Ticket } from '#src/csi-gateway/single-flight.ts';

const name = (value: string): { kind: 'name'; value: string } => ({ kind: 'name', value });
const handle = (value: string): { kind: 'handle'; value: string } => ({ kind: 'handle', value });

function taken(flight: SingleFlight, key: Parameters<SingleFlight['acquire']>[0]): Ticket {
  const begun = flight.acquire(key, 'test');
  assert.ok(begun.ok);
  return begun.ticket;
}

describe('InFlight', () => {
  it('lets one call at a time have a name, and tells the second who has it', () => {
    const flight = new SingleFlight();
    const first = flight.acquire(name('v'), 'CreateVolume');
    assert.ok(first.ok);
    assert.deepEqual(flight.acquire(name('v'), 'x'), { ok: false, running: 'CreateVolume' });
    taken(flight, name('other'));
    first.ticket.release();
    taken(flight, name('v'));
  });

  it('does not take a name for a handle of the same letters', () => {
    const flight = new SingleFlight();
    taken(flight, name('v'));
    taken(flight, handle('v'));
  });

  it('keeps create and delete of one volume apart once it knows its handle, either way round', () => {
    const flight = new SingleFlight();
    flight.link('v', 'h');
    const create = taken(flight, name('v'));
    assert.equal(flight.acquire(handle('h'), 'x').ok, false);
    create.release();
    const remove = taken(flight, handle('h'));
    assert.equal(flight.acquire(name('v'), 'x').ok, false);
    flight.unlink('h');
    assert.equal(flight.acquire(name('v'), 'x').ok, false, 'the deletion still holds the name');
    remove.release();
    taken(flight, name('v'));
    taken(flight, handle('h'));
    assert.equal(flight.size, 2);
  });

  it('follows a name that gets a new handle', () => {
    const flight = new SingleFlight();
    flight.link('v', 'old');
    flight.link('v', 'new');
    taken(flight, name('v'));
    assert.equal(flight.acquire(handle('new'), 'x').ok, false);
    taken(flight, handle('old'));
  });

  it('releases once, whatever a late second release says', () => {
    const flight = new SingleFlight();
    const first = taken(flight, name('v'));
    first.release();
    taken(flight, name('v'));
    first.release();
    assert.equal(flight.acquire(name('v'), 'x').ok, false);
  });

  it('remembers a bounded number of volumes', () => {
    const flight = new SingleFlight();
    for (let i = 0; i <= 10_000; i += 1) flight.link(`v${i}`, `h${i}`);
    taken(flight, name('v0'));
    taken(flight, handle('h0'));
    taken(flight, name('v10000'));
    assert.equal(flight.acquire(handle('h10000'), 'x').ok, false);
  });
});
