import { keyPrefix } from '../redis/key-prefix.ts';

/* Names of the keys in Redis. Keys and hash fields keep the names of the first version (`blessing`,
 * `epoch` and `beat` for data epoch, id and sequence; `fence` for the version of the active
 * gateway), because processes of two versions share them during a rolling update. */

/** Hash of the fields of one volume record; see record-scripts.ts. */
export const volumeRecordKey = nameItemKeys('volume');

/** Text that reserves a volume name for a claim; see names-in-use.ts. */
export const volumeNameKey = nameItemKeys('name');

/** Hash of a driver's open records: record id to job key. */
export const openRecordsKey = nameDriverKeys('open');

/** Hash of the claims whose creation began since the last loss; see record-scripts.ts. */
export const begunKey = nameDriverKeys('begun');

/** Number of records that one process has opened; see record-scripts.ts. */
export const openingCountKey = nameItemKeys('openings');

/** Hash of the epoch of Redis' data for one driver; see data-epoch.ts. */
export const dataEpochKey = nameDriverKeys('blessing');

/** Hash of the one gateway of a driver that gets calls; see active-gateway.ts. */
export const activeGatewayKey = nameDriverKeys('gateway');

/** Hash of the handles that several PVs name; see shared-handles.ts. */
export const sharedHandlesKey = nameDriverKeys('shared');

/** Hash of who has asked for shared handles, and who lists PVs for it; see shared-handles.ts. */
export const handleAsksKey = nameDriverKeys('shared-asks');

/** Hash of volumes that audits found unknown, handle to time; see src/audit/audit.ts. */
export const auditKey = nameDriverKeys('audit');

/** List of records that operators dropped, the latest first; see forget.ts. */
export const forgottenKey = nameDriverKeys('forgotten');

/** Hash of the room on nodes that claims have reserved; see reserved-capacity.ts. */
export const roomKey = nameDriverKeys('room');

/** Sorted set of the reservations by the time at which each expires; see reserved-capacity.ts. */
export const roomExpiryKey = nameDriverKeys('room-expiry');

function nameDriverKeys(kind: string) {
  return (prefix: string, driver: string) => `${keyPrefix(prefix)}:${kind}:${driver}`;
}

function nameItemKeys(kind: string) {
  return (prefix: string, driver: string, item: string) =>
    `${keyPrefix(prefix)}:${kind}:${driver}:${item}`;
}
