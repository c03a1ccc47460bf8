import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { describe, it } from 'node:test';
import { parse } from 'yaml';

interface Workflow {
  readonly permissions?: unknown;
  readonly jobs: Readonly<
    Record<
      string,
      { readonly steps?: readonly { readonly run?: string; readonly uses?: string }[] }
    >
  >;
}

// Tests run from dist-dev/test/packages.
const ROOT = new URL('../../../', import.meta.url);
const FOLDER = new URL('.github/workflows/', ROOT);
const readText = (file: string, base: URL = ROOT): string =>
  readFileSync(new URL(file, base), 'utf8');

const { scripts } = JSON.parse(readText('package.json')) as { readonly scripts: object };
const texts = readdirSync(FOLDER).map((file) => readText(file, FOLDER));
const workflows = texts.map((text) => parse(text) as Workflow);
const steps = workflows.flatMap(({ jobs }) =>
  Object.values(jobs).flatMap((job) => job.steps ?? []),
);
const commands = steps.flatMap(({ run }) => (run === undefined ? [] : [run]));

describe('a workflow of GitHub', () => {
  it('names each action by the commit of a version', () => {
    const uses = texts.join('').match(/uses: (?!\.\/).*$/gm) ?? [];
    assert.equal(uses.length, steps.filter((step) => step.uses !== undefined).length);
    for (const use of uses)
      assert.match(use, /^uses: [\w-]+\/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$/);
  });

  it('may only read, but for what a job asks for', () => {
    for (const { permissions } of workflows) assert.deepEqual(permissions, { contents: 'read' });
  });

  it('has no expression in a command, whose value could be a command too', () => {
    for (const command of commands) assert.doesNotMatch(command, /\$\{\{/);
  });

  it('runs only scripts that package.json has', () => {
    const named = commands.flatMap((command) =>
      [...command.matchAll(/npm run (?:--silent )?([\w:]+)/g)].map(([, script = '']) => script),
    );
    assert.ok(named.length > 5);
    for (const script of named) assert.ok(script in scripts, script);
  });
});
