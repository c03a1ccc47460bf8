import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { SingleFlight, type VolumeKey } from '#src/driver/single-flight.ts';

const name = (value: string): VolumeKey => ({ kind: 'name', value });
const handle = (value: string): VolumeKey => ({ kind: 'handle', value });

/** Takes a volume that must be free.
 * @returns releases it */
function acquire(flights: SingleFlight, key: VolumeKey): () => void {
  const flight = flights.acquire(key, 'test');
  assert.ok(flight.ok);
  return flight.release;
}

describe('SingleFlight', () => {
  it('allows one call per name and tells the second which method is running', () => {
    const flights = new SingleFlight();
    const first = flights.acquire(name('v'), 'CreateVolume');
    assert.ok(first.ok);
    assert.deepEqual(flights.acquire(name('v'), 'x'), { ok: false, running: 'CreateVolume' });
    acquire(flights, name('other'));
    first.release();
    acquire(flights, name('v'));
  });

  it('keeps a name and a handle with the same text apart', () => {
    const flights = new SingleFlight();
    acquire(flights, name('v'));
    acquire(flights, handle('v'));
  });

  it('excludes create and delete of a volume whose name and handle are linked', () => {
    const flights = new SingleFlight();
    flights.link('v', 'h');
    const endCreate = acquire(flights, name('v'));
    assert.equal(flights.acquire(handle('h'), 'x').ok, false);
    endCreate();
    const endDelete = acquire(flights, handle('h'));
    assert.equal(flights.acquire(name('v'), 'x').ok, false);
    flights.unlink('h');
    assert.equal(flights.acquire(name('v'), 'x').ok, false, 'the deletion still has the name');
    endDelete();
    acquire(flights, name('v'));
    acquire(flights, handle('h'));
    assert.equal(flights.size, 2);
  });

  it('links a name to its latest handle only', () => {
    const flights = new SingleFlight();
    flights.link('v', 'old');
    flights.link('v', 'new');
    acquire(flights, name('v'));
    assert.equal(flights.acquire(handle('new'), 'x').ok, false);
    acquire(flights, handle('old'));
  });

  it('ignores a second release', () => {
    const flights = new SingleFlight();
    const release = acquire(flights, name('v'));
    release();
    acquire(flights, name('v'));
    release();
    assert.equal(flights.acquire(name('v'), 'x').ok, false);
  });

  it('keeps a bounded number of links', () => {
    const flights = new SingleFlight();
    for (let i = 0; i <= 10_000; i += 1) flights.link(`v${i}`, `h${i}`);
    acquire(flights, name('v0'));
    acquire(flights, handle('h0'));
    acquire(flights, name('v10000'));
    assert.equal(flights.acquire(handle('h10000'), 'x').ok, false);
  });
});
