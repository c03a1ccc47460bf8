import * as all from './all/flags.ts';
import * as csiGateway from './csi-gateway/flags.ts';
import * as dashboard from './dashboard/flags.ts';
import * as ingest from './ingest/flags.ts';
import * as jobs from './jobs/flags.ts';
import * as operator from './operator/flags.ts';
import type { FlagTable } from './runtime/flags.ts';
import type { Invocation } from './runtime/process.ts';
import * as sandboxApi from './sandbox/api/flags.ts';
import * as sandboxDriver from './sandbox/driver/flags.ts';
import * as sandbox from './sandbox/flags.ts';

/** A process of sutler: what `sutler NAME` starts. */
export interface Process {
  readonly flags: FlagTable;
  readonly summary: string;
  /** Imports it; only the one that is to run is loaded. */
  readonly load: () => Promise<{ readonly main: (invocation: Invocation) => Promise<void> }>;
}

/** Every process by its name. */
export const processes: Readonly<Record<string, Process>> = {
  ingest: { ...ingest, load: () => import('./ingest/main.ts') },
  jobs: { ...jobs, load: () => import('./jobs/main.ts') },
  'csi-gateway': { ...csiGateway, load: () => import('./csi-gateway/main.ts') },
  dashboard: { ...dashboard, load: () => import('./dashboard/main.ts') },
  all: { ...all, load: () => import('./all/main.ts') },
  audit: { ...operator.audit, load: () => import('./operator/audit/main.ts') },
  forget: { ...operator.forget, load: () => import('./operator/forget/main.ts') },
  uninstall: { ...operator.uninstall, load: () => import('./operator/uninstall/main.ts') },
  sandbox: { ...sandbox, load: () => import('./sandbox/main.ts') },
  'sandbox-api': { ...sandboxApi, load: () => import('./sandbox/api/main.ts') },
  'sandbox-driver': { ...sandboxDriver, load: () => import('./sandbox/driver/main.ts') },
};

/** The flags of all processes: each accepts those of the others, so that one argument list serves all. */
export const allFlags: FlagTable = Object.assign({}, ...Object.values(processes).map(({ flags }) => flags)) as FlagTable;
