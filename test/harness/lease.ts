import { once } from 'node:events';
import { setImmediate as turn } from 'node:timers/promises';
import type { LeaseRecord, StoredLease } from '#src/election/lease.ts';
import type { LeaseStore } from '#src/election/kube-lease-store.ts';
import type { Clock } from '#src/runtime/clock.ts';

/** A clock whose time changes only in `pass` and `jump`. */
export class ManualClock implements Clock {
  #nowMs: number;
  readonly #sleepers = new Set<{ untilMs: number; readonly resume: () => void }>();

  constructor(startMs = 1_700_000_000_000) {
    this.#nowMs = startMs;
  }

  nowMs(): number {
    return this.#nowMs;
  }

  sleep(ms: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      if (signal?.aborted === true) return resolve();
      const sleeper = {
        untilMs: this.#nowMs + ms,
        resume: (): void => {
          this.#sleepers.delete(sleeper);
          signal?.removeEventListener('abort', sleeper.resume);
          resolve();
        },
      };
      this.#sleepers.add(sleeper);
      signal?.addEventListener('abort', sleeper.resume, { once: true });
    });
  }

  /** Advances in small steps, so that timers fire in the order of their times. */
  async pass(ms: number, stepMs = 100): Promise<void> {
    await runPending();
    for (let left = ms; left > 0; left -= stepMs) {
      this.#nowMs += Math.min(stepMs, left);
      for (const sleeper of this.#sleepers) if (sleeper.untilMs <= this.#nowMs) sleeper.resume();
      await runPending();
    }
  }

  /** Sets the time back, as an operator does. Sleeps take as long as they would have. */
  setBack(ms: number): void {
    this.#nowMs -= ms;
    for (const sleeper of this.#sleepers) sleeper.untilMs -= ms;
  }

  /** Advances in one step, as a frozen process sees time. */
  async jump(ms: number): Promise<void> {
    this.#nowMs += ms;
    for (const sleeper of this.#sleepers) if (sleeper.untilMs <= this.#nowMs) sleeper.resume();
    await runPending();
  }
}

/** Lets pending promises and callbacks run. */
export async function runPending(): Promise<void> {
  for (let i = 0; i < 5; i += 1) await turn();
}

/** A Lease in memory. */
export class MemoryLeaseStore {
  lease: StoredLease | undefined;
  readonly writes: LeaseRecord[] = [];
  #version = 0;
  readonly #watchers = new Set<(lease: StoredLease | undefined) => void>();

  /** A candidate's connection, which can fail (`broken`), hang, or get no events (`blind`). */
  connect(): LeaseStore & { broken: boolean; hanging: boolean; blind: boolean; calls: number } {
    const connection = {
      broken: false,
      hanging: false,
      blind: false,
      calls: 0,
      get: async (signal: AbortSignal) => {
        await reach(signal);
        return this.lease;
      },
      write: async (record: LeaseRecord, over: StoredLease | undefined, signal: AbortSignal) => {
        await reach(signal);
        return this.lease?.version === over?.version ? this.write(record) : undefined;
      },
      watch: (onChange: (lease: StoredLease | undefined) => void) => {
        const notify = (lease: StoredLease | undefined): void => {
          if (!connection.blind && !connection.broken) onChange(lease);
        };
        this.#watchers.add(notify);
        return () => void this.#watchers.delete(notify);
      },
    };
    const reach = async (signal: AbortSignal): Promise<void> => {
      connection.calls += 1;
      await turn();
      if (connection.hanging) await once(signal, 'abort');
      signal.throwIfAborted();
      if (connection.broken) throw new Error('connection refused');
    };
    return connection;
  }

  write(
    record: LeaseRecord | undefined,
    annotations: StoredLease['annotations'] = this.lease?.annotations ?? {},
  ): StoredLease {
    this.#version += 1;
    const version = String(this.#version);
    this.lease = record === undefined ? undefined : { record, annotations, version };
    if (record !== undefined) this.writes.push(record);
    for (const watcher of this.#watchers) watcher(this.lease);
    return (
      this.lease ?? {
        record: { holder: '', durationMs: 0, acquiredMs: 0, renewedMs: 0, transitions: 0 },
        annotations,
        version: '',
      }
    );
  }
}
