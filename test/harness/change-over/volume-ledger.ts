import type {
  CreateVolumeRequest,
  CreateVolumeResponse,
  DeleteVolumeRequest,
} from '#src/csi/generated/csi_pb.ts';
import type { DriverCall } from '../../../sandbox/driver/server.ts';

/** Who called the driver. */
export type Caller = 'sutler' | 'other';

interface MadeVolume {
  readonly handle: string;
  readonly by: Caller;
}

/** When the first and the last call of one caller began, Unix ms. */
interface CallTimes {
  first: number;
  last: number;
}

/** Keeps what was asked of a sample driver, and by whom: pass `onCall` to the driver. */
export class VolumeLedger {
  /** By volume name: each volume that was made, in order. */
  readonly #made = new Map<string, MadeVolume[]>();
  readonly #deleted = new Map<string, Caller>();
  readonly #times = new Map<Caller, CallTimes>();
  readonly #isOther: (call: DriverCall) => boolean;
  creations = 0;

  /** @param isOther  whether a call comes from the other provisioner */
  constructor(isOther: (call: DriverCall) => boolean) {
    this.#isOther = isOther;
  }

  readonly onCall = async (call: DriverCall): Promise<unknown> => {
    const { method, request } = call;
    if (method !== 'CreateVolume' && method !== 'DeleteVolume') return undefined;
    const by = this.#isOther(call) ? 'other' : 'sutler';
    const nowMs = Date.now();
    const times = this.#times.get(by);
    if (times === undefined) this.#times.set(by, { first: nowMs, last: nowMs });
    else times.last = nowMs;
    const answer = await call.proceed();
    if (method === 'DeleteVolume') {
      this.#deleted.set((request as DeleteVolumeRequest).volumeId, by);
      return answer;
    }
    const { name } = request as CreateVolumeRequest;
    const handle = (answer as CreateVolumeResponse).volume?.volumeId ?? '';
    const made = this.#made.get(name) ?? [];
    if (!made.some((volume) => volume.handle === handle)) {
      made.push({ handle, by });
      this.creations += 1;
    }
    this.#made.set(name, made);
    return answer;
  };

  /** Forgets the times of all calls. */
  resetTimes(): void {
    this.#times.clear();
  }

  timesOf(caller: Caller): Readonly<CallTimes> | undefined {
    return this.#times.get(caller);
  }

  madeBy(caller: Caller): number {
    return [...this.#made.values()].flat().filter(({ by }) => by === caller).length;
  }

  /** Who made the volume of this handle. */
  makerOf(handle: string): Caller | undefined {
    return [...this.#made.values()].flat().find((made) => made.handle === handle)?.by;
  }

  /** The volumes that were made when the volume of that name had been made before: after its
   * deletion, or beside it. */
  madeAgain(): { readonly name: string; readonly by: Caller; readonly wasDeleted: boolean }[] {
    return [...this.#made].flatMap(([name, made]) =>
      made.slice(1).map(({ by }, before) => ({
        name,
        by,
        wasDeleted: this.#deleted.has(made[before]?.handle ?? ''),
      })),
    );
  }
}
