startGallery();
drawCurves();
fillFilters();
choose();
