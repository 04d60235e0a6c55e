// The bundle has fixed names, so that a rebuild can be compared byte for byte with what is committed: the page itself,
// and what it fetches when it is needed (formulas with their fonts, colours of code).
import { readdirSync, readFileSync } from 'node:fs';
import { defineConfig } from 'vite';

// Browsers that run this page read woff2; KaTeX's other fonts stay out.
const fewerFonts = {
  name: 'fewer-fonts',
  enforce: 'pre',
  transform(code, id) {
    if (!id.endsWith('katex.css')) return null;
    return code.replace(/,\s*url\([^)]*\.(?:woff|ttf)\)\s*format\([^)]*\)/g, '');
  },
};

// The licences of the libraries that are part of the bundle, whole, in one file beside it.
const licences = {
  name: 'licences',
  generateBundle(_, bundle) {
    const used = new Set();
    for (const chunk of Object.values(bundle)) {
      for (const id of chunk.moduleIds ?? []) {
        const name = id.match(/node_modules\/((?:@[^/]+\/)?[^/]+)\//)?.[1];
        if (name) used.add(name);
      }
    }
    const source = [...used].sort().map((name) => {
      const folder = `node_modules/${name}`;
      const { version, license } = JSON.parse(readFileSync(`${folder}/package.json`, 'utf8'));
      const file = readdirSync(folder).find((one) => /^licen[cs]e/i.test(one));
      if (!file) throw new Error(`${name}: no licence in its package`);
      return `${name} ${version} (${license})\n\n${readFileSync(`${folder}/${file}`, 'utf8').trim()}\n`;
    });
    this.emitFile({ type: 'asset', fileName: 'licences.txt', source: source.join(`\n${'-'.repeat(80)}\n\n`) });
  },
};

export default defineConfig({
  base: './',
  plugins: [fewerFonts, licences],
  build: {
    outDir: 'dist',
    target: 'es2022',
    modulePreload: false,
    cssCodeSplit: false,
    assetsInlineLimit: 0,
    reportCompressedSize: false,
    rollupOptions: {
      output: {
        entryFileNames: 'app.js',
        chunkFileNames: '[name].js',
        assetFileNames: (asset) => (asset.names.some((name) => name.endsWith('.css')) ? 'app.css' : '[name][extname]'),
      },
    },
  },
});
