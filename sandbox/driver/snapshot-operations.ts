import type { MessageInitShape } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import type {
  CreateSnapshotRequest,
  ListSnapshotsRequest,
  SnapshotSchema,
} from '#src/csi/generated/csi_pb.ts';
import { Code } from '#src/csi/status.ts';
import type { Clock } from '#src/runtime/clock.ts';
import { copyContents } from './contents.ts';
import { DriverStatus } from './driver-status.ts';
import type { OneAtATime } from './one-at-a-time.ts';
import { pageOf, type Page } from './page.ts';
import { REQUIRE_SECRET_PARAMETER, requireSecret } from './secrets.ts';
import type { StoredSnapshot, VolumeStore } from './volume-store.ts';

export interface SnapshotRules {
  readonly store: VolumeStore;
  readonly alone: OneAtATime;
  readonly clock: Clock;
}

/** What the sample driver does with snapshots. A snapshot is a whole copy and outlives its volume;
 * the pool does not count it. */
export class SnapshotOperations {
  readonly #rules: SnapshotRules;

  constructor(rules: SnapshotRules) {
    this.#rules = rules;
  }

  async create(request: CreateSnapshotRequest): Promise<StoredSnapshot> {
    if (request.name === '') throw new DriverStatus(Code.InvalidArgument, 'no snapshot name given');
    if (request.sourceVolumeId === '')
      throw new DriverStatus(Code.InvalidArgument, 'no source volume id given');
    const secretKey = request.parameters[REQUIRE_SECRET_PARAMETER] ?? '';
    requireSecret(secretKey, request.secrets);
    const existing = this.#existing(request);
    return (
      existing ??
      this.#rules.alone.run(
        `snapshot name ${request.name}`,
        () => this.#existing(request) ?? this.#make(request, secretKey),
      )
    );
  }

  async delete(handle: string, secrets: Readonly<Record<string, string>>): Promise<void> {
    const { store, alone } = this.#rules;
    if (handle === '') throw new DriverStatus(Code.InvalidArgument, 'no snapshot id given');
    const snapshot = store.snapshots.byHandle(handle);
    if (snapshot === undefined) return;
    requireSecret(snapshot.secretKey, secrets);
    await alone.run(`snapshot ${handle}`, () => store.snapshots.delete(handle));
  }

  /** Those of one volume, one of them, or all; what does not exist is an empty page. */
  list({ snapshotId, sourceVolumeId, ...where }: ListSnapshotsRequest): Page<StoredSnapshot> {
    const wanted = this.#rules.store.snapshots
      .list()
      .filter(({ handle }) => snapshotId === '' || handle === snapshotId)
      .filter(({ sourceVolume }) => sourceVolumeId === '' || sourceVolume === sourceVolumeId);
    return pageOf(wanted, where, 'snap-');
  }

  /** The snapshot as answers show it. */
  picture(snapshot: StoredSnapshot): MessageInitShape<typeof SnapshotSchema> {
    return {
      snapshotId: snapshot.handle,
      sourceVolumeId: snapshot.sourceVolume,
      sizeBytes: snapshot.capacityBytes,
      creationTime: timestampFromMs(snapshot.createdMs),
      readyToUse: true,
    };
  }

  /** The snapshot that an earlier call took; to find it is no work.
   * @throws DriverStatus AlreadyExists where it is another volume's, Aborted where it is just being
   *   deleted */
  #existing({ name, sourceVolumeId }: CreateSnapshotRequest): StoredSnapshot | undefined {
    const { store, alone } = this.#rules;
    const existing = store.snapshots.byName(name);
    if (existing === undefined) return undefined;
    alone.mustBeFree(`snapshot ${existing.handle}`);
    if (existing.sourceVolume === sourceVolumeId) return existing;
    throw new DriverStatus(
      Code.AlreadyExists,
      `snapshot ${name} exists of volume ${existing.sourceVolume}`,
    );
  }

  #make({ name, sourceVolumeId }: CreateSnapshotRequest, secretKey: string): StoredSnapshot {
    const { store, clock } = this.#rules;
    const volume = store.byHandle(sourceVolumeId);
    if (volume === undefined)
      throw new DriverStatus(
        Code.NotFound,
        `there is no volume ${sourceVolumeId} to take a snapshot of`,
      );
    const { capacityBytes, accessType } = volume;
    return store.snapshots.create(
      {
        name,
        capacityBytes,
        accessType,
        secretKey,
        sourceVolume: sourceVolumeId,
        createdMs: clock.nowMs(),
      },
      (directory) => copyContents(store.directory(sourceVolumeId), directory),
    );
  }
}
