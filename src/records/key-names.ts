import { keyPrefix } from '../redis/key-names.ts';

/* Names of the keys in Redis. Keys and hash fields keep the names of the first version (`blessing`,
 * `epoch` and `beat` for incarnation, id and sequence; `fence` for the version of the active
 * gateway), because processes of two versions share them during a rolling update. */

/** Hash of one volume record; the fields are explained in records/record-scripts.ts. */
export function volumeRecordKey(prefix: string, driver: string, id: string): string {
  return `${keyPrefix(prefix)}:volume:${driver}:${id}`;
}

/** Hash of a driver's open records: record id to job key. */
export function openRecordsKey(prefix: string, driver: string): string {
  return `${keyPrefix(prefix)}:open:${driver}`;
}

/** Hash of the incarnation of Redis' data for one driver; records/incarnation.ts. */
export function incarnationKey(prefix: string, driver: string): string {
  return `${keyPrefix(prefix)}:blessing:${driver}`;
}

/** Hash of the one gateway of a driver that gets calls; records/active-gateway.ts. */
export function activeGatewayKey(prefix: string, driver: string): string {
  return `${keyPrefix(prefix)}:gateway:${driver}`;
}

/** Text that reserves a volume name for a claim; records/names-in-use.ts. */
export function volumeNameKey(prefix: string, driver: string, name: string): string {
  return `${keyPrefix(prefix)}:name:${driver}:${name}`;
}

/** Hash of volumes that audits found unknown, handle to time; records/audit-ledger.ts. */
export function auditKey(prefix: string, driver: string): string {
  return `${keyPrefix(prefix)}:audit:${driver}`;
}

/** List of records that operators dropped, the latest first; records/forget.ts. */
export function forgottenKey(prefix: string, driver: string): string {
  return `${keyPrefix(prefix)}:forgotten:${driver}`;
}
