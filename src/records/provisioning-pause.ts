import type { Redis } from 'ioredis';
import type { WaitCondition } from '../rules/rule.ts';
import { isFields, parseJson } from '../runtime/json.ts';
import type { Logger } from '../runtime/log.ts';
import type { DataEpochStore } from './data-epoch.ts';
import { dataEpochKey, openRecordsKey } from './key-names.ts';

/* The provisioning pause: while another provisioner leads, and while sutler is drained, no volume
 * without an open record is created or deleted (record rule 9). Keys that need it wait. */

/** The pause in wait conditions, by its only name. It is no object of the API server: the leading
 * ingest tells its version to the dependency watcher. */
export const PROVISIONING_PAUSE = { resource: 'newwork', name: '*' } as const;

const PAUSED = 'halted';

/** Until the pause ends. */
export const UNTIL_PAUSE_ENDS: readonly WaitCondition[] = [{ ...PROVISIONING_PAUSE, seen: PAUSED }];

/** The version of the pause in wait conditions. */
export function pauseVersion(isPaused: boolean): string {
  return isPaused ? PAUSED : 'allowed';
}

/* The drain of an installation, for one driver: while it is set, the scripts that open records open
 * nothing that is not open (record rule 9). So once no record is open, none is opened any more. It
 * is a field of the hash of data-epoch.ts, which these scripts read anyway, and stays until an
 * operator ends it. */

const FIELD = 'drain';

/** Who drains, since when. */
export interface Drain {
  readonly by: string;
  /** Unix ms. */
  readonly atMs: number;
}

/** The drain of one driver, as operators set and end it. Methods reject while Redis can't be
 * reached. */
export function redisDrain(redis: Redis, prefix: string, driver: string) {
  const key = dataEpochKey(prefix, driver);
  return {
    /** Sets it; one that is set already stays as it is. */
    async begin(drain: Drain): Promise<void> {
      await redis.hsetnx(key, FIELD, JSON.stringify(drain));
    },
    /** @returns whether it was set */
    async end(): Promise<boolean> {
      return (await redis.hdel(key, FIELD)) === 1;
    },
    /** Whether it is set and by whom, the other provisioner that was seen since one of ours led,
     * whether a leader of ours has confirmed Redis' data, and how many records are open. */
    async read() {
      const [[drain, foreign, dataEpoch], open] = await Promise.all([
        redis.hmget(key, FIELD, 'foreign', 'epoch'),
        redis.hlen(openRecordsKey(prefix, driver)),
      ]);
      return {
        isDrained: typeof drain === 'string',
        drain: parseDrain(drain ?? ''),
        otherProvisioner: foreign ?? undefined,
        isConfirmed: typeof dataEpoch === 'string',
        open,
      };
    },
  };
}

function parseDrain(text: string): Drain | undefined {
  const drain = parseJson(text);
  if (!isFields(drain)) return undefined;
  return { by: String(drain['by']), atMs: Number(drain['atMs']) };
}

/** Tells the workers, through Redis, which other provisioner holds the driver's Lease (invariant
 * 10).
 *
 * Every ingest names it again each second, and every worker whenever the API server tells that it
 * holds the Lease, since Redis may have lost its name. Only a leader of ours removes the name, with
 * each check of the data epoch: while none of ours leads, another may. */
export class OtherProvisioner {
  readonly #dataEpochs: Pick<DataEpochStore, 'setOtherProvisioner'>;
  readonly #log: Logger;
  #holder: string | undefined;
  #isWriting = false;

  constructor(dataEpochs: Pick<DataEpochStore, 'setOtherProvisioner'>, log: Logger) {
    this.#dataEpochs = dataEpochs;
    this.#log = log;
  }

  /** @param holder  the other provisioner that holds the Lease; undefined: none does */
  observe(holder: string | undefined): void {
    this.#report(holder);
    if (holder !== undefined && !this.#isWriting) void this.#write(holder);
  }

  #report(holder: string | undefined): void {
    if (holder === this.#holder) return;
    if (holder === undefined) this.#log.info('no other provisioner leads any more');
    else this.#log.warn({ holder }, 'another provisioner leads: only open records are finished');
    this.#holder = holder;
  }

  async #write(holder: string): Promise<void> {
    this.#isWriting = true;
    try {
      await this.#dataEpochs.setOtherProvisioner(holder);
    } catch (error) {
      this.#log.debug({ err: error }, 'could not tell the workers who leads; trying again');
    } finally {
      this.#isWriting = false;
    }
  }
}
